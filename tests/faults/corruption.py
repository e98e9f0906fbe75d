"""Random corruption of a file: flipped bits, lost, zeroed and inserted bytes, impossible sizes."""

KINDS = ("flip", "cut", "lose", "zero", "insert", "double", "huge", "swap")
HUGE = (0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)
SPANS = (1, 2, 4, 8, 60, 400)
EDGE = 64
"""Headers and directories are in the first and the last bytes; they are corrupted as often as the rest."""


def corrupt(content, random, others):
    """(kind of corruption, corrupt content); `others` are contents that may replace it."""
    kind = random.choice(KINDS)
    return kind, bytes(corrupted(kind, content, random, others))


def corrupted(kind, content, random, others):
    at, span = place(content, random), random.choice(SPANS)
    before, after = content[:at], content[at:]
    match kind:
        case "flip":
            changed = bytearray(content)
            for _ in range(random.choice([1, 1, 3, 20])):
                changed[min(place(content, random), len(content) - 1)] ^= 1 << random.randrange(8)
            return changed
        case "cut":
            return before
        case "lose":
            return before + after[span:]
        case "zero":
            return before + bytes(min(span, len(after))) + after[span:]
        case "insert":
            return before + random.randbytes(span) + after
        case "double":
            return before + after[:span] + after
        case "huge":  # a number that is no possible length, count or offset
            size = random.choice([4, 8])
            return (
                before + (random.choice(HUGE) & ((1 << 8 * size) - 1)).to_bytes(size, "little") + after[size:]
            )
        case "swap":
            return random.choice(others)


def place(content, random):
    """An offset: anywhere, or near the beginning or the end."""
    size = len(content)
    begin, end = min(size, random.randrange(EDGE)), max(0, size - random.randrange(EDGE * 8))
    return random.choice([random.randrange(size + 1), begin, end])
