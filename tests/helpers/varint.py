"""Numbers as records hold them (spec 2.3)."""


def varint(number: int) -> bytes:
    """Zigzag, then seven bits a byte, low group first; up to 64 bits."""
    rest = ((number << 1) ^ (number >> 63)) & (2**64 - 1)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])
