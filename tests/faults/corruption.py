"""Random corruption of a file: flipped bits, lost, zeroed and inserted bytes, impossible sizes."""

HUGE = (0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)
SPANS = (1, 2, 4, 8, 60, 400)
EDGE = 64
"""Headers and directories are in the first and the last bytes; they are corrupted as often as the rest."""


def corrupt(content, random, others):
    """(kind of corruption, corrupt content); `others` are contents that may replace it."""
    kind = random.choice(list(KINDS))
    return kind, bytes(KINDS[kind](content, random, others))


def place(content, random):
    """An offset: anywhere, or near the beginning or the end."""
    size = len(content)
    return random.choice(
        [
            random.randrange(size + 1),
            min(size, random.randrange(EDGE)),
            max(0, size - random.randrange(EDGE * 8)),
        ]
    )


def flip(content, random, others):
    changed = bytearray(content)
    for _ in range(random.choice([1, 1, 3, 20])):
        at = min(place(content, random), len(content) - 1)
        changed[at] ^= 1 << random.randrange(8)
    return changed


def cut(content, random, others):
    return content[: place(content, random)]


def lose(content, random, others):
    at = place(content, random)
    return content[:at] + content[at + random.choice(SPANS) :]


def zero(content, random, others):
    at, size = place(content, random), random.choice(SPANS)
    size = min(size, len(content) - at)
    return content[:at] + bytes(size) + content[at + size :]


def insert(content, random, others):
    at = place(content, random)
    return content[:at] + random.randbytes(random.choice(SPANS)) + content[at:]


def double(content, random, others):
    at = place(content, random)
    return content[:at] + content[at : at + random.choice(SPANS)] + content[at:]


def huge(content, random, others):
    """Write a number that is no possible length, count or offset over four or eight bytes."""
    at, size = place(content, random), random.choice([4, 8])
    number = random.choice(HUGE) & ((1 << 8 * size) - 1)
    return content[:at] + number.to_bytes(size, "little") + content[at + size :]


def swap(content, random, others):
    return random.choice(others)


KINDS = {function.__name__: function for function in (flip, cut, lose, zero, insert, double, huge, swap)}
