"""Keys of the operator's JWKS file (RFC 7517), and what a signature of each algorithm is (RFC 7518).

A token names its algorithm and perhaps a key; only keys of that kind are tried, so a public key can never be taken for
a secret, and `none` is nobody's algorithm.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from minibroker.security.oauth import WrongToken, from_base64url

# Algorithm -> kind of the key, its curve, and the hash. The names are those of cryptography's classes.
ALGORITHMS: Final = {
    **{f"RS{bits}": ("RSA", "", f"SHA{bits}") for bits in (256, 384, 512)},
    **{f"PS{bits}": ("RSA", "", f"SHA{bits}") for bits in (256, 384, 512)},
    "ES256": ("EC", "P-256", "SHA256"),
    "ES384": ("EC", "P-384", "SHA384"),
    "ES512": ("EC", "P-521", "SHA512"),
}
CURVES: Final = {"P-256": ("SECP256R1", 32), "P-384": ("SECP384R1", 48), "P-521": ("SECP521R1", 66)}
RSA_BITS_MIN: Final = 2048  # RFC 7518, 3.3


class Jwk(NamedTuple):
    """A public key of the file."""

    id: str | None
    kind: str
    curve: str
    algorithm: str | None  # the only one that it is for
    key: Any


class Jwks:
    """All keys of a file."""

    def __init__(self, keys: list[Jwk]):
        self._keys = keys

    def verify(self, header: Mapping[str, Any], signed: bytes, signature: bytes) -> bool:
        """Whether a key of the file has made a signature, as the header of a token says."""
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            return False
        kind, curve, _ = ALGORITHMS[algorithm]
        return any(
            _verify(key.key, algorithm, signed, signature)
            for key in self._keys
            if (key.kind, key.curve) == (kind, curve)
            if key.algorithm in (None, algorithm) and (key_id is None or key.id == key_id)
        )


def read_jwks(text: str | bytes) -> Jwks:
    """Return the keys of a file; ValueError if it has none that can be used."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(found, dict) or not isinstance(found.get("keys"), list):
        raise ValueError('it is not {"keys": [...]}')
    keys = []
    for index, each in enumerate(found["keys"]):
        try:
            make = _KINDS.get(each.get("kty", ""))
            if make is None or each.get("use", "sig") != "sig" or each.get("alg", "RS256") not in ALGORITHMS:
                continue  # of another purpose, as for encryption: such files are shared
            keys.append(make(each))
        except (ValueError, KeyError, TypeError, AttributeError, WrongToken) as error:
            raise ValueError(f"keys[{index}] is no key that can be used: {error}") from None
    if not keys:
        raise ValueError("it has no key for signatures (kty RSA or EC)")
    return Jwks(keys)


def _rsa(described: Mapping[str, Any]) -> Jwk:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

    key = RSAPublicNumbers(_number(described, "e"), _number(described, "n")).public_key()
    if key.key_size < RSA_BITS_MIN:
        raise ValueError(f"RSA with {key.key_size} bits; {RSA_BITS_MIN} are the least")
    return Jwk(described.get("kid"), "RSA", "", described.get("alg"), key)


def _ec(described: Mapping[str, Any]) -> Jwk:
    from cryptography.hazmat.primitives.asymmetric import ec

    curve = described["crv"]
    if curve not in CURVES:
        raise ValueError("its curve is none of P-256, P-384, P-521")
    of_curve = getattr(ec, CURVES[curve][0])()
    key = ec.EllipticCurvePublicNumbers(_number(described, "x"), _number(described, "y"), of_curve).public_key()
    return Jwk(described.get("kid"), "EC", curve, described.get("alg"), key)


_KINDS: Final[dict[str, Callable[[Mapping[str, Any]], Jwk]]] = {"RSA": _rsa, "EC": _ec}


def _number(described: Mapping[str, Any], name: str) -> int:
    return int.from_bytes(from_base64url(described[name]))


def _verify(key: Any, algorithm: str, signed: bytes, signature: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    _, curve, name = ALGORITHMS[algorithm]
    digest = getattr(hashes, name)()
    try:
        if algorithm.startswith("ES"):
            size_bytes = CURVES[curve][1]
            if len(signature) != 2 * size_bytes:
                return False
            halves = (int.from_bytes(half) for half in (signature[:size_bytes], signature[size_bytes:]))
            key.verify(encode_dss_signature(*halves), signed, ec.ECDSA(digest))
        elif algorithm.startswith("PS"):
            key.verify(signature, signed, padding.PSS(padding.MGF1(digest), digest.digest_size), digest)
        else:
            key.verify(signature, signed, padding.PKCS1v15(), digest)
    except InvalidSignature:
        return False
    return True
