"""Keccak-256 as in Ethereum, whose padding differs from hashlib's standard SHA-3."""

_RATE_BYTES = 136
_MASK = (1 << 64) - 1


def keccak_256(data: bytes) -> bytes:
    """Return the hash of `data`, 32 bytes."""
    padded = bytearray(data + b"\x01" + bytes(-(len(data) + 1) % _RATE_BYTES))
    padded[-1] |= 0x80
    lanes = [[0] * 5 for _ in range(5)]
    for block in range(0, len(padded), _RATE_BYTES):
        for index in range(_RATE_BYTES // 8):
            at = block + 8 * index
            lanes[index % 5][index // 5] ^= int.from_bytes(padded[at : at + 8], "little")
        lanes = _permuted(lanes)
    return b"".join(lanes[index % 5][index // 5].to_bytes(8, "little") for index in range(4))


def _permuted(lanes: list[list[int]]) -> list[list[int]]:
    register = 1
    for _ in range(24):
        parity = [a ^ b ^ c ^ d ^ e for a, b, c, d, e in lanes]
        mix = [parity[(x + 4) % 5] ^ _turned(parity[(x + 1) % 5], 1) for x in range(5)]
        lanes = [[lane ^ mix[x] for lane in lanes[x]] for x in range(5)]
        x, y, current = 1, 0, lanes[1][0]
        for step in range(24):
            x, y = y, (2 * x + 3 * y) % 5
            current, lanes[x][y] = lanes[x][y], _turned(current, (step + 1) * (step + 2) // 2)
        lanes = [
            [lanes[x][y] ^ (~lanes[(x + 1) % 5][y] & lanes[(x + 2) % 5][y] & _MASK) for y in range(5)] for x in range(5)
        ]
        for bit in range(7):
            register = (register << 1 ^ (register >> 7) * 0x71) % 256
            if register & 2:
                lanes[0][0] ^= 1 << ((1 << bit) - 1)
    return lanes


def _turned(lane: int, by: int) -> int:
    by %= 64
    return (lane << by | lane >> (64 - by)) & _MASK
