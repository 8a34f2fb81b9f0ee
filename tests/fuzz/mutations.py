"""Bytes changed by chance, as fuzzers change them."""

import random

INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)
MOST_CHANGES = 6


def changed(data: bytes, chance: random.Random, other: bytes = b"") -> bytes:
    """The bytes with a few changes of any kind; pieces of `other` may be put in."""
    made = bytearray(data)
    for _ in range(chance.randint(1, MOST_CHANGES)):
        at = chance.randrange(len(made) + 1)
        size = min(chance.choice((1, 2, 4, 8, 61)), len(made) - at)
        kind = chance.randrange(8)
        if kind == 0 and size:
            made[at] ^= 1 << chance.randrange(8)
        elif kind == 1 and size:
            made[at] = chance.choice(INTERESTING)
        elif kind == 2 and size:
            made[at : at + size] = chance.randbytes(size)
        elif kind == 3:
            del made[at : at + chance.choice((1, 4, 16, 100))]
        elif kind == 4:
            made[at:at] = chance.randbytes(chance.choice((1, 4, 16)))
        elif kind == 5:
            made[at:at] = made[at : at + size]
        elif kind == 6 and size >= 2:
            number = int.from_bytes(made[at : at + size], "big") + chance.randint(-3, 3)
            made[at : at + size] = (number % (1 << 8 * size)).to_bytes(size, "big")
        elif kind == 7 and other:
            begin = chance.randrange(len(other))
            made[at : at + size] = other[begin : begin + size]
    return bytes(made)
