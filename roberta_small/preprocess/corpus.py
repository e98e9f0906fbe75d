"""Running text -> a data folder for pre-training: each paragraph once, no sentence of the evaluation texts.

Reads text files, also .gz, .xz and .bz2: one paragraph per line, an empty line between documents. Paragraphs
and sentences are compared by their words: case, punctuation and spacing are ignored. A sentence ends at
. ! ? ; : or an ellipsis; sentences of fewer than 50 characters are ignored because they are common.

Contents of DIR:
    dict.txt train.bin valid.bin ...   fairseq's binary data; with several shards in shard0/, shard1/, ...
    text/train.txt                     the text that is left
    tokenizer/ preprocess.json         the tokenizer; options, counts and checksums
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path

import numpy as np
from tqdm import tqdm

from roberta_small.common.data_folder import (
    REPORT,
    Report,
    check_replaceable,
    finished,
    request,
    write_report,
)
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_folder, atomic_open
from roberta_small.preprocess.audit import normalized
from roberta_small.preprocess.binarize import Split, write_data
from roberta_small.preprocess.readers.lines import disk_bytes, read_blocks
from roberta_small.preprocess.tokenization.choice import FOLDER, TokenizerOptions, choose

HELD_OUT = "0.01"
"""Default fraction of the documents for validation."""
MOST_SHARDS = 500
"""Two files each; a process may usually have 1,024 open."""
SHORTEST = 20
"""Length of a paragraph in characters."""
ENDS = re.compile(r"[.!?;:…]+")
SHARED_CHARS = 50
"""Length from which a shared sentence is unlikely to be a coincidence."""
BATCH = 10_000
"""Lines that are compared with those before at a time."""
KEPT, SHORT, DUPLICATE, PROTECTED = "kept", "short", "duplicate", "protected"
FATES = (KEPT, SHORT, DUPLICATE, PROTECTED)


@dataclass(frozen=True, kw_only=True)
class CorpusOptions(TokenizerOptions):
    """What decides the content of a data folder for pre-training."""

    texts: tuple[str, ...]
    valid: str = HELD_OUT
    """A file, which is used as it is, or a fraction: each round(1 / fraction)-th document is held out."""
    protect: tuple[str, ...] = ()
    """Texts whose sentences must not occur in the result."""
    shards: int = 1

    @property
    def valid_every(self) -> int | None:
        """Each document of this number is for validation, None for a file; `UserError` for anything else."""
        if Path(self.valid).is_file():
            return None
        try:
            fraction = Fraction(self.valid)
        except (ValueError, ZeroDivisionError):
            raise UserError(f"--valid {self.valid}: no such file; pass a file or a fraction") from None
        if not 0 < fraction <= Fraction(1, 2):
            raise UserError(f"--valid {self.valid}: pass a file, or a fraction of the documents up to 0.5")
        return round(1 / fraction)

    def request(self) -> Report:
        """The options and the checksums of the files behind them; raises `UserError` for a missing file."""
        if self.shards > MOST_SHARDS:
            raise UserError(f"--shards {self.shards}: at most {MOST_SHARDS}: all are written at once")
        tokenizer, of_tokenizer = self.tokenizer_request()
        valid = [self.valid] if self.valid_every is None else []
        for path in (*self.texts, *self.protect):
            if not Path(path).is_file():
                what = "is a folder" if Path(path).is_dir() else "no such file"
                raise UserError(f"{path}: {what}; give text files")
            if path in self.texts and valid and Path(path).samefile(self.valid):
                raise UserError(
                    f"--valid {self.valid}: is training text, too; pass another file or a fraction"
                )
        options = {
            "corpus": list(self.texts),
            "valid": self.valid,
            "valid_every": self.valid_every,
            "protect": list(self.protect),
            **({"shards": self.shards} if self.shards > 1 else {}),
            **tokenizer,
        }
        return request(options, [*self.texts, *valid, *self.protect, *of_tokenizer])


def prepare_corpus(
    options: CorpusOptions, destdir: str, *, workers: int = 1, overwrite: bool = False
) -> Report:
    """Write the data folder in one step and return its report; prints the paragraphs of each file.

    A folder that contains the same result is left unchanged. Raises `UserError` for bad input, and then
    writes nothing.
    """
    wanted, destination = options.request(), Path(destdir)
    if (report := finished(destination, REPORT, wanted)) is not None:
        return report
    check_replaceable(destination, REPORT, overwrite=overwrite)
    protected = {digest(words) for _, line in lines_of(options.protect) for words in sentences(line)}
    counts: dict[str, Counter[str]] = {path: Counter() for path in options.texts}
    with atomic_folder(destination) as folder:
        text = folder / "text" / "train.txt"
        with atomic_open(text) as stream:
            for path, fate, line in judged(options.texts, protected):
                counts[path][fate] += bool(line)
                if fate == KEPT:
                    stream.write(f"{line}\n")
        print("\n".join(table(counts)), flush=True)
        tokenizer = choose(options, [text], workers=workers)
        splits = [Split("train", {".": [str(text)]}, None)]
        if options.valid_every is None:
            splits.append(Split("valid", {".": [options.valid]}, None))
        written, _ = write_data(
            folder, splits, tokenizer.encoder, valid_every=options.valid_every, shards=options.shards,
            workers=workers,
        )  # fmt: skip
        tokenizer.save(folder / FOLDER)
        paragraphs = {path: {fate: counts[path][fate] for fate in FATES} for path in options.texts}
        extra = {"splits": written, "paragraphs": paragraphs, "tokenizer": tokenizer.describe()}
        return write_report(folder, REPORT, wanted | extra)


def summary(report: Report) -> list[str]:
    """Sentences, tokens and unknown tokens of each split."""
    return [
        f"{split if place == '.' else f'{place}/{split}'}: {found['sentences']:,} sentences, "
        f"{found['tokens']:,} tokens, {found['unknown_rate']:.3%} unknown"
        for split, places in report["splits"].items()
        for place, found in places.items()
    ]


def judged(texts: Sequence[str], protected: set[bytes]) -> Iterator[tuple[str, str, str]]:
    """File, fate and text of each line; of empty lines in a row one is kept, with no text."""
    lines, seen, open_document = lines_of(texts), Seen(), False
    while batch := list(islice(lines, BATCH)):
        fates = [SHORT if len(line) < SHORTEST else KEPT for _, line in batch]
        if protected:
            for number, (_, line) in enumerate(batch):
                if fates[number] == KEPT and any(digest(words) in protected for words in sentences(line)):
                    fates[number] = PROTECTED
        kept = [number for number, fate in enumerate(fates) if fate == KEPT]
        keys = np.frombuffer(b"".join(digest(normalized(batch[number][1])) for number in kept), dtype="<u8")
        for number, new in zip(kept, seen.add(keys), strict=True):
            if not new:
                fates[number] = DUPLICATE
        for (path, line), fate in zip(batch, fates, strict=True):
            if not line:
                fate = KEPT if open_document else SHORT
            open_document = bool(line) and (open_document or fate == KEPT)
            yield path, fate, line


def lines_of(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """File and text of each line, spaces made single."""
    with tqdm(total=disk_bytes(texts), unit="B", unit_scale=True, desc="corpus", disable=None) as bar:
        for path in texts:
            for block in read_blocks(path):
                for line in block.lines():
                    yield path, " ".join(line.split())
                bar.update(block.file_bytes)
            yield path, ""  # a document ends at the end of its file


def sentences(line: str) -> Iterator[str]:
    """The words of each sentence of `SHARED_CHARS` or more characters."""
    for part in ENDS.split(line):
        if len(part) >= SHARED_CHARS and len(words := normalized(part)) >= SHARED_CHARS:
            yield words


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
        if not new_D.any():
            return new_N
        keys = keys_D[new_D]
        while self.sorted_arrays and len(self.sorted_arrays[-1]) <= 2 * len(keys):
            keys = np.concatenate([self.sorted_arrays.pop(), keys])
            keys.sort(kind="stable")  # of two sorted halves: one merge
        self.sorted_arrays.append(keys)
        return new_N
