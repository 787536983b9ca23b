"""Certificates (X.509, RFC 5280), as far as a broker looks into them: whose they are, by the name that Java gives it.

    subject_of(der)             "CN=alice,OU=dev,O=Acme,C=DE", as X500Principal.getName() prints it (RFC 2253)
    alternative_names_of(der)   the subject's other names, each as its bytes

What is read has been parsed by OpenSSL before, which lets nothing through that is no certificate; ValueError is for
what is none all the same.
"""

from __future__ import annotations

from collections.abc import Iterator

# The attributes that have a keyword in RFC 2253; others are told by their numbers.
KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# Tags of the strings that Java shows as text, taking all for UTF-8: UTF8, Printable, T61, IA5, General, BMP.
STRINGS = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
EXPLICIT_VERSION, EXTENSIONS = 0xA0, 0xA3
SUBJECT_ALTERNATIVE_NAME = "2.5.29.17"
ESCAPED = ',+<>#;"\\='
SUBJECT = 4  # of the parts behind the version: serial number, signature, issuer, validity, subject


def subject_of(certificate: bytes) -> str:
    """Return the subject's distinguished name."""
    return name_of(_parts(certificate)[SUBJECT][2])


def name_of(name: bytes) -> str:
    """Return a distinguished name as text."""
    (_, parts, _), *_ = _values(name)
    relative = ["+".join(_attribute(pair) for _, pair, _ in _values(part)) for _, part, _ in _values(parts)]
    return ",".join(reversed(relative))


def alternative_names_of(certificate: bytes) -> frozenset[bytes]:
    """Return the subject's alternative names."""
    for tag, wrapped, _ in _parts(certificate):
        if tag == EXTENSIONS:
            for _, extension, _ in _values(next(_values(wrapped))[1]):
                (_, number, _), *_, (_, value, _) = _values(extension)
                if _dotted(number) == SUBJECT_ALTERNATIVE_NAME:
                    return frozenset(whole for _, _, whole in _values(next(_values(value))[1]))
    return frozenset()


def _parts(certificate: bytes) -> list[tuple[int, bytes, bytes]]:
    """Return what was signed, without the version."""
    try:
        _, whole, _ = next(_values(certificate))
        _, signed, _ = next(_values(whole))
        parts = list(_values(signed))
    except StopIteration:
        raise ValueError("no certificate") from None
    if parts and parts[0][0] == EXPLICIT_VERSION:
        del parts[0]
    if len(parts) <= SUBJECT:
        raise ValueError("no certificate: it has no subject")
    return parts


def _values(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield tag, content and all bytes of each value of DER."""
    position = 0
    while position < len(data):
        begin, tag = position, data[position]
        length = data[position + 1] if position + 1 < len(data) else 0
        position += 2
        if length & 0x80:
            size_bytes = length & 0x7F
            length = int.from_bytes(data[position : position + size_bytes], "big")
            position += size_bytes
        end = position + length
        if end > len(data):
            raise ValueError("a value of DER is longer than what is there")
        yield tag, data[position:end], data[begin:end]
        position = end


def _attribute(pair: bytes) -> str:
    (_, number, _), (tag, value, whole) = _values(pair)
    oid = _dotted(number)
    if oid in KEYWORDS and tag in STRINGS:
        return f"{KEYWORDS[oid]}={_escaped(value.decode('utf-8', 'replace'))}"
    return f"{KEYWORDS.get(oid, oid)}=#{whole.hex()}"


def _dotted(number: bytes) -> str:
    """Return an object identifier as it is written."""
    arcs, value = [], 0
    for byte in number:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(value)
            value = 0
    first = min(arcs[0] // 40, 2) if arcs else 0
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:]))) if arcs else ""


def _escaped(text: str) -> str:
    """Escape as RFC 2253 wants it: what has a meaning, and spaces at both ends."""
    shown = "".join("\\00" if letter == "\0" else f"\\{letter}" if letter in ESCAPED else letter for letter in text)
    inner = shown.strip(" \r")
    if not inner:
        return "".join(f"\\{letter}" for letter in shown)
    lead, _, trail = shown.partition(inner)
    return "".join(f"\\{letter}" for letter in lead) + inner + "".join(f"\\{letter}" for letter in trail)
