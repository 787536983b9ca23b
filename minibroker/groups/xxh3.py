"""XXH3, 64 bits, without seed: the hash by which Kafka sees whether the topics of a group have changed (KIP-1101).

Layout of the work: up to 16 bytes in one step, up to 240 in pieces of 16, beyond that eight sums over stripes of 64,
stirred after each 16 stripes. The secret is the algorithm's own.
Not here: what is hashed (metadata_hash.py). Inputs are small, so nothing is done for speed.
"""

from __future__ import annotations

from struct import unpack_from

MASK = (1 << 64) - 1
PRIME32_1, PRIME32_2, PRIME32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
PRIME64_1, PRIME64_2, PRIME64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
PRIME64_4, PRIME64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
MIX_1, MIX_2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
STRIPE, STRIPES_PER_BLOCK = 64, 16
BLOCK = STRIPE * STRIPES_PER_BLOCK
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
LAST_STRIPE_SECRET, MERGE_SECRET = len(SECRET) - STRIPE - 7, 11


def xxh3_64(data: bytes) -> int:
    """Return the hash as a number without sign."""
    length = len(data)
    if length > 240:
        return _long(data)
    if length > 128:
        total = length * PRIME64_1 + sum(_mixed(data, 16 * i, 16 * i) for i in range(8))
        total = _avalanche(total & MASK) + sum(_mixed(data, 16 * i, 16 * (i - 8) + 3) for i in range(8, length // 16))
        return _avalanche(total + _mixed(data, length - 16, 136 - 17) & MASK)
    if length > 16:
        total = length * PRIME64_1
        for i in range((length - 1) // 32 + 1):
            total += _mixed(data, 16 * i, 32 * i) + _mixed(data, length - 16 * (i + 1), 32 * i + 16)
        return _avalanche(total & MASK)
    if length > 8:
        low = _int64(data, 0) ^ _int64(SECRET, 24) ^ _int64(SECRET, 32)
        high = _int64(data, length - 8) ^ _int64(SECRET, 40) ^ _int64(SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche(length + swapped + high + _folded(low, high) & MASK)
    if length > 3:
        first, last = int.from_bytes(data[:4], "little"), int.from_bytes(data[-4:], "little")
        value = last + (first << 32) ^ _int64(SECRET, 8) ^ _int64(SECRET, 16)
        value = (value ^ _rotated(value, 49) ^ _rotated(value, 24)) * MIX_2 & MASK
        value = (value ^ (value >> 35) + length) * MIX_2 & MASK
        return value ^ value >> 28
    if length:
        combined = data[0] << 16 | data[length >> 1] << 24 | data[-1] | length << 8
        low = int.from_bytes(SECRET[:4], "little") ^ int.from_bytes(SECRET[4:8], "little")
        return _old_avalanche(combined ^ low)
    return _old_avalanche(_int64(SECRET, 56) ^ _int64(SECRET, 64))


def _long(data: bytes) -> int:
    sums = [PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1]
    stripes = (len(data) - 1) // STRIPE
    for stripe in range(stripes):
        _accumulate(sums, data, stripe * STRIPE, stripe % STRIPES_PER_BLOCK * 8)
        if (stripe + 1) * STRIPE % BLOCK == 0:
            keys = unpack_from("<8Q", SECRET, len(SECRET) - STRIPE)
            sums[:] = [(value ^ value >> 47 ^ key) * PRIME32_1 & MASK for value, key in zip(sums, keys)]
    _accumulate(sums, data, len(data) - STRIPE, LAST_STRIPE_SECRET)
    keys = unpack_from("<8Q", SECRET, MERGE_SECRET)
    pairs = (_folded(sums[i] ^ keys[i], sums[i + 1] ^ keys[i + 1]) for i in range(0, 8, 2))
    return _avalanche(len(data) * PRIME64_1 + sum(pairs) & MASK)


def _accumulate(sums: list[int], data: bytes, position: int, secret_position: int) -> None:
    values, keys = unpack_from("<8Q", data, position), unpack_from("<8Q", SECRET, secret_position)
    for i, (value, key) in enumerate(zip(values, keys)):
        keyed = value ^ key
        sums[i ^ 1] = sums[i ^ 1] + value & MASK
        sums[i] = sums[i] + (keyed & 0xFFFFFFFF) * (keyed >> 32) & MASK


def _mixed(data: bytes, position: int, secret_position: int) -> int:
    low = _int64(data, position) ^ _int64(SECRET, secret_position)
    return _folded(low, _int64(data, position + 8) ^ _int64(SECRET, secret_position + 8))


def _folded(left: int, right: int) -> int:
    product = left * right
    return (product ^ product >> 64) & MASK


def _avalanche(value: int) -> int:
    value = (value ^ value >> 37) * MIX_1 & MASK
    return value ^ value >> 32


def _old_avalanche(value: int) -> int:
    value = (value ^ value >> 33) * PRIME64_2 & MASK
    value = (value ^ value >> 29) * PRIME64_3 & MASK
    return value ^ value >> 32


def _int64(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 8], "little")


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & MASK
