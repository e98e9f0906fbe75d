"""Running text for pre-training: each paragraph once, no sentence of the evaluation texts.

Reads text files, also .gz, .xz and .bz2: one paragraph per line, an empty line between documents. Writes one
file without duplicate paragraphs and without paragraphs that share a sentence with a protected text.
Paragraphs and sentences are compared by their words: case, punctuation and spacing are ignored. A sentence
ends at . ! ? ; : or an ellipsis; sentences of fewer than 50 characters are ignored because they are common.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
from tqdm import tqdm

from roberta_small.common.cli import positive
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_open, atomic_write, sha256
from roberta_small.preprocess.audit import normalized
from roberta_small.preprocess.readers.lines import disk_bytes, read_blocks

ENDS = re.compile(r"[.!?;:…]+")
SHARED_CHARS = 50
"""Length from which a shared sentence is unlikely to be a coincidence."""
BATCH = 10_000
"""Lines that are compared with those before at a time."""
KEPT, SHORT, DUPLICATE, PROTECTED = "kept", "short", "duplicate", "protected"
FATES = (KEPT, SHORT, DUPLICATE, PROTECTED)
EXAMPLES = """examples:
  roberta-small corpus --text news.txt.xz novels.txt.xz --protect valid.input0 test.input0 \\
      --out corpus.txt
  roberta-small corpus --text corpus.txt --protect valid.input0 test.input0 --check
"""


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `corpus`."""
    parser = subparsers.add_parser(
        "corpus",
        help="remove duplicate paragraphs and paragraphs that share a sentence with protected texts",
        description=__doc__,
        examples=EXAMPLES,
    )
    parser.add_argument("--text", required=True, nargs="+", metavar="FILE", help="one paragraph per line")
    parser.add_argument(
        "--protect",
        nargs="+",
        default=[],
        metavar="FILE",
        help="texts whose sentences must not occur in the output",
    )
    parser.add_argument(
        "--min-chars",
        type=positive,
        default=20,
        metavar="N",
        help="minimum length of a paragraph in characters (default: %(default)s)",
    )
    goal = parser.add_mutually_exclusive_group(required=True)
    goal.add_argument("--out", metavar="FILE", help="text to write; FILE.json contains the counts")
    goal.add_argument(
        "--check", action="store_true", help="write nothing; fail if a sentence of --protect is in --text"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """The command; the exit code is 1 where a check finds a shared sentence."""
    if args.check and not args.protect:
        raise UserError("--check needs --protect: the texts whose sentences must not be in --text")
    protected = sentences_of(args.protect)
    if args.check:
        return check(args.text, protected)
    counts: dict[str, Counter[str]] = {path: Counter() for path in args.text}
    with atomic_open(args.out) as stream:
        for path, fate, line in judged(args.text, protected, args.min_chars):
            counts[path][fate] += bool(line)
            if fate == KEPT:
                stream.write(f"{line}\n")
    report = {
        "protect": list(args.protect),
        "min_chars": args.min_chars,
        "sentence_chars": SHARED_CHARS,
        "paragraphs": {path: {fate: counts[path][fate] for fate in FATES} for path in args.text},
        "sha256": {path: sha256(path) for path in [*args.text, *args.protect, args.out]},
    }
    atomic_write(f"{args.out}.json", json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    print("\n".join(table(counts)))
    return 0


def check(texts: Sequence[str], protected: set[bytes]) -> int:
    """Name the first lines that share a sentence with the protected texts; 0 if there is none."""
    found = 0
    for path, number, line in lines_of(texts):
        if shares(line, protected):
            found += 1
            if found <= 10:
                print(f"{path}, line {number}: shares a sentence with a protected text: {line[:100]}")
    lines = "no line shares" if found == 0 else "1 line shares" if found == 1 else f"{found:,} lines share"
    print(f"{lines} a sentence of {SHARED_CHARS} or more characters with a protected text")
    return 1 if found else 0


def judged(texts: Sequence[str], protected: set[bytes], min_chars: int) -> Iterator[tuple[str, str, str]]:
    """File, fate and text of each line; of empty lines in a row one is kept, with no text."""
    lines, seen, open_document = lines_of(texts), Seen(), False
    while batch := list(islice(lines, BATCH)):
        fates = fates_of([line for _, _, line in batch], protected, min_chars, seen)
        for (path, _, line), fate in zip(batch, fates, strict=True):
            if not line:
                fate = KEPT if open_document else SHORT
            open_document = bool(line) and (open_document or fate == KEPT)
            yield path, fate, line


def fates_of(lines: Sequence[str], protected: set[bytes], min_chars: int, seen: Seen) -> list[str]:
    """What becomes of each line, given those seen before; an empty one is too short."""
    fates = [
        SHORT if len(line) < min_chars else PROTECTED if shares(line, protected) else KEPT for line in lines
    ]
    kept = [number for number, fate in enumerate(fates) if fate == KEPT]
    keys = np.frombuffer(b"".join(digest(normalized(lines[number])) for number in kept), dtype="<u8")
    for number, new in zip(kept, seen.add(keys), strict=True):
        if not new:
            fates[number] = DUPLICATE
    return fates


def lines_of(texts: Sequence[str]) -> Iterator[tuple[str, int, str]]:
    """File, number (from 1) and text of each line, spaces made single."""
    with tqdm(total=disk_bytes(texts), unit="B", unit_scale=True, desc="corpus", disable=None) as bar:
        for path in texts:
            for block in read_blocks(path):
                for number, line in enumerate(block.lines(), start=block.first_line):
                    yield path, number, " ".join(line.split())
                bar.update(block.file_bytes)
            yield path, 0, ""  # a document ends at the end of its file


def sentences_of(paths: Iterable[str]) -> set[bytes]:
    """Digests of the sentences that count."""
    paths = list(paths)
    return {digest(sentence) for _, _, line in lines_of(paths) for sentence in sentences(line)}


def sentences(line: str) -> Iterator[str]:
    """The words of each sentence of `SHARED_CHARS` or more characters."""
    for part in ENDS.split(line):
        if len(part) >= SHARED_CHARS and len(words := normalized(part)) >= SHARED_CHARS:
            yield words


def shares(line: str, protected: set[bytes]) -> bool:
    """Whether the line has a protected sentence."""
    return bool(protected) and any(digest(sentence) in protected for sentence in sentences(line))


def digest(words: str) -> bytes:
    """Eight bytes that identify a text; the probability of any collision among 10^8 texts is 1 in 3,700."""
    return hashlib.blake2b(words.encode(), digest_size=8).digest()


def table(counts: dict[str, Counter[str]]) -> list[str]:
    """Paragraphs of each file by fate."""
    width = max(map(len, [*counts, "all"]))
    total = sum(counts.values(), Counter[str]())
    rows = [(path, counts[path]) for path in counts] + [("all", total)]
    head = f"{'file':{width}}" + "".join(f"{fate:>12}" for fate in FATES)
    return [head, *(f"{name:{width}}" + "".join(f"{row[fate]:>12,}" for fate in FATES) for name, row in rows)]


class Seen:
    """A set of 64-bit keys, queried and extended by arrays of keys.

    A log-structured merge tree (O'Neil et al. 1996): sorted arrays, each more than twice as long as the next;
    new keys are merged from the short end. N keys take 8 N bytes, and up to 24 N while the longest arrays are
    merged; a Python set of bytes takes 75 N.
    """

    def __init__(self) -> None:
        self.sorted_arrays: list[np.ndarray] = []

    def add(self, keys_N: np.ndarray) -> np.ndarray:
        """Keys, uint64 (N,) -> bool (N,): whether a key is new, at its first place."""
        keys_D, first_D = np.unique(keys_N, return_index=True)
        new_D = np.ones(len(keys_D), dtype=bool)
        for array in self.sorted_arrays:
            place_D = np.searchsorted(array, keys_D)
            new_D &= array[np.minimum(place_D, len(array) - 1)] != keys_D
        new_N = np.zeros(len(keys_N), dtype=bool)
        new_N[first_D[new_D]] = True
        if new_D.any():
            self._merge(keys_D[new_D])
        return new_N

    def _merge(self, keys: np.ndarray) -> None:
        while self.sorted_arrays and len(self.sorted_arrays[-1]) <= 2 * len(keys):
            keys = np.concatenate([self.sorted_arrays.pop(), keys])
            keys.sort(kind="stable")  # of two sorted halves: one merge
        self.sorted_arrays.append(keys)
