"""fairseq's dictionary: one `symbol count` per line of text, after four special symbols that are not listed.

Same ids and same bytes as `fairseq/data/dictionary.py` of fairseq 0.12, without importing torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from roberta_small.common.errors import UserError
from roberta_small.common.files import read_lines

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
BOS = SPECIALS.index("<s>")
PAD = SPECIALS.index("<pad>")
EOS = SPECIALS.index("</s>")
UNK = SPECIALS.index("<unk>")
MASK = "<mask>"
"""The token that fairseq's tasks add to a dictionary that does not list it."""
NO_SEPARATOR = -1
"""The value of --separator-token for pairs `<s> A </s> B </s>`, as BERT reads them."""
OVERWRITE = "#fairseq:overwrite"
PADDING_FACTOR = 8  # fairseq-preprocess pads the dictionaries it builds to a multiple of this
PADDING_PREFIX = "madeupword"
"""Prefix of the entries that fairseq pads a dictionary with; none of them is a class."""
WORD_START = "▁"
"""SentencePiece's character for a space, with which the first token of a word begins."""


@dataclass
class Dictionary:
    """Symbols with consecutive ids; the specials come first and are not in the file."""

    symbols: list[str] = field(default_factory=lambda: list(SPECIALS))
    counts: list[int] = field(default_factory=lambda: [1] * len(SPECIALS))
    index: dict[str, int] = field(default_factory=lambda: {s: i for i, s in enumerate(SPECIALS)})

    def __len__(self) -> int:
        """Number of vocabulary entries, the four special symbols included."""
        return len(self.symbols)

    def append(self, symbol: str, count: int) -> None:
        """Give `symbol` the next id (an earlier one of the same name loses its own)."""
        self.index[symbol] = len(self.symbols)
        self.symbols.append(symbol)
        self.counts.append(count)

    def with_mask(self) -> Dictionary:
        """The dictionary with `<mask>` as last entry, which fairseq adds; itself if it lists it."""
        if MASK in self.index:
            return self
        found = Dictionary([*self.symbols], [*self.counts], {**self.index})
        found.append(MASK, 0)
        return found

    def names(self) -> list[str]:
        """The symbols that the file lists: without specials, in id order."""
        return self.symbols[len(SPECIALS) :]

    def text(self) -> str:
        """The content of `dict.txt`; a symbol that occurs again, or is a special one, is marked."""
        seen, lines = set(SPECIALS), []
        for symbol, count in zip(self.names(), self.counts[len(SPECIALS) :], strict=True):
            lines.append(f"{symbol} {count} {OVERWRITE}\n" if symbol in seen else f"{symbol} {count}\n")
            seen.add(symbol)
        return "".join(lines)


def load(path: str) -> Dictionary:
    """Read a `dict.txt`; raises `UserError` with file and line where it is malformed or repeats a symbol."""
    return parse(read_lines(path), path)


def parse(lines: Iterable[str], path: str) -> Dictionary:
    """The dictionary in the lines of `path`; errors as for `load`."""
    dictionary = Dictionary()
    for number, line in enumerate(lines, start=1):
        symbol, _, count = line.rstrip().rpartition(" ")
        overwrite = count == OVERWRITE
        if overwrite:
            symbol, _, count = symbol.rpartition(" ")
        try:
            times = int(count)
        except ValueError:
            symbol = ""
        if not symbol:
            raise UserError(
                f"{path}, line {number}: expected 'symbol count', found '{line[:60]}'; use a fairseq dict.txt"
            )
        if symbol in dictionary.index and not overwrite:
            raise UserError(
                f"{path}, line {number}: duplicate symbol '{symbol}'; remove it, or append {OVERWRITE}"
            )
        dictionary.append(symbol, times)
    if not dictionary.names():
        raise UserError(f"{path}: empty; use a fairseq dict.txt, as roberta-small prepare writes it")
    return dictionary


def build(labels: Iterable[str] | Mapping[str, int]) -> Dictionary:
    """The dictionary `fairseq-preprocess` builds of one-word lines, or of their counts.

    Most frequent first, ties in alphabetical order, padded to a multiple of 8 (`Dictionary.finalize`).
    """
    dictionary = Dictionary()
    for label, count in sorted(Counter(labels).items(), key=lambda item: (-item[1], item[0])):
        dictionary.append(label, count)
    number = 0
    while len(dictionary) % PADDING_FACTOR:
        name = f"{PADDING_PREFIX}{number:04d}"
        if name not in dictionary.index:
            dictionary.append(name, 0)
        number += 1
    return dictionary
