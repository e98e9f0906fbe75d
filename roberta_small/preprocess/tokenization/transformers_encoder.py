"""A Transformers tokenizer as an encoder of text: its ids, in the order of a fairseq dictionary.

fairseq gives the ids 0 to 3 to `<s>`, `<pad>`, `</s>` and `<unk>`. Tokenizers of RoBERTa, CamemBERT and XLM-R
keep these ids for special tokens, so their ids stay as they are. Those of another tokenizer (BERT) are
permuted: the token before a text, padding, the token after a text and the unknown token become 0 to 3, and
all other tokens follow in their order. The permutation follows from the tokenizer alone, which stays
unmodified.

V ids of the tokenizer.
"""

from __future__ import annotations

import io
import json
import re
import tempfile
import zipfile
from collections.abc import Mapping
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_small.common.errors import UserError
from roberta_small.common.optional import needed_by
from roberta_small.preprocess import dictionary as fairseq_dictionary
from roberta_small.preprocess.dictionary import (
    MASK,
    PAD,
    PADDING_PREFIX,
    SPECIALS,
    UNK,
    WORD_START,
    Dictionary,
)
from roberta_small.preprocess.readers.lines import Block
from roberta_small.preprocess.tokenization.encoder import Encoded
from roberta_small.preprocess.tokenization.symbols import SYMBOLS

DIVIDED = ("Unigram", "WordLevel")
"""Models of tokenizers that would find the names of special tokens in a text."""


class TransformersEncoder:
    """Text to the ids of a Transformers tokenizer, closed by its separator token.

    The names of special tokens inside a text (`</s>`, `[MASK]`) are read as text, as SentencePiece does: such
    a text is encoded by a copy of the tokenizer without special tokens (`text_only`).

    Raises `UserError` for a tokenizer that cannot be loaded, or lacks one of the four special tokens.
    """

    def __init__(self, name: str, *, normalize_apostrophes: bool = False) -> None:
        self.name = name
        self.normalize_apostrophes = normalize_apostrophes
        self.tokenizer = load_transformers(name)
        self._ends = ends_of_a_text(self.tokenizer, name)
        self.order = fairseq_order(self.tokenizer, self._ends, name)
        symbols = Path(name) / SYMBOLS
        if symbols.is_file():
            self.dictionary = fairseq_dictionary.load(str(symbols))
            if len(self.dictionary) != len(self.order):
                raise UserError(
                    f"{symbols}: {len(self.dictionary):,} entries, but the tokenizer has "
                    f"{len(self.order):,} ids; write the folder again"
                )
        else:
            self.dictionary = dictionary_of(self.tokenizer, self.order)
        self._fairseq_ids = np.argsort(self.order).astype(np.int32)
        self.init_token = int(self._fairseq_ids[self._ends[0]])
        """Id before a text: 0 for `<s>` of RoBERTa and XLM-R and `[CLS]` of BERT, 5 for CamemBERT."""
        self.separator_token = int(self._fairseq_ids[self._ends[1]])
        """Id after a text: of `</s>` or `[SEP]`; 2, for CamemBERT 6."""
        added = getattr(self.tokenizer, "added_tokens_decoder", {})
        specials = {index for index, token in added.items() if getattr(token, "special", False)}
        self._specials = specials | set(self.tokenizer.all_special_ids)

    def save(self, folder: Path) -> None:
        """Write the files of the tokenizer into an existing folder."""
        self.tokenizer.save_pretrained(folder)
        if self.dictionary.symbols != dictionary_of(self.tokenizer, self.order).symbols:
            (folder / SYMBOLS).write_text(self.dictionary.text(), encoding="utf-8")

    def packed(self) -> bytes:
        """The files of the tokenizer as a zip archive, for a file that contains it."""
        content = io.BytesIO()
        with (
            tempfile.TemporaryDirectory() as folder,
            zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as packed,
        ):
            self.save(Path(folder))
            for path in sorted(Path(folder).iterdir()):
                packed.writestr(zipfile.ZipInfo(path.name), path.read_bytes(), zipfile.ZIP_DEFLATED)
        return content.getvalue()

    @classmethod
    def unpacked(
        cls, content: bytes, where: str, *, normalize_apostrophes: bool = False
    ) -> TransformersEncoder:
        """The inverse; raises `UserError`, naming the file `where`, for anything else."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                with zipfile.ZipFile(io.BytesIO(content)) as packed:
                    for name in packed.namelist():
                        (Path(folder) / Path(name).name).write_bytes(packed.read(name))
            except (zipfile.BadZipFile, OSError) as error:
                raise UserError(
                    f"{where}: its tokenizer is corrupt ({error}); write the file again"
                ) from None
            try:
                found = cls(folder, normalize_apostrophes=normalize_apostrophes)
            except UserError as error:
                raise UserError(str(error).replace(folder, where)) from None
        found.name = where
        return found

    @cached_property
    def separates_pairs(self) -> bool:
        """Whether a pair has two separators between its texts, as in RoBERTa: `<s> A </s> </s> B </s>`."""
        first, last = self._ends
        return self.tokenizer("a", "b")["input_ids"].count(last) - (first == last) > 2

    @cached_property
    def has_token_types(self) -> bool:
        """Whether the tokens of the second text of a pair have a type of their own, as in BERT."""
        return any(self.tokenizer("a", "b").get("token_type_ids") or ())

    def __call__(self, block: Block) -> Encoded:
        """Encode one block; raises `UserError` where it is not UTF-8."""
        lines = block.lines(normalize_apostrophes=self.normalize_apostrophes)
        rows = self.tokenizer(lines, add_special_tokens=False, verbose=False)["input_ids"]
        for number, row in enumerate(rows):
            if not self._specials.isdisjoint(row):
                rows[number] = self._as_text(lines[number], row, block, number)
        sizes = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        ids = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(sizes.sum()))
        closed = np.insert(self._fairseq_ids[ids], np.cumsum(sizes), self.separator_token)
        return Encoded(block, closed, sizes + 1)

    def written(self, text: str) -> list[str]:
        """The tokens of a text as it has them, with `WORD_START` before those that begin a word.

        Of a tokenizer without offsets, what each token adds to the decoded text.
        """
        tokens: list[str] = []
        if not self.tokenizer.is_fast:
            content = text.encode() + b"\n"
            ids = self(Block("text", 1, content, len(content))).ids[:-1]
            names = self.tokenizer.convert_ids_to_tokens(self.order[ids].tolist())
            before = ""
            for count in range(1, len(names) + 1):
                now = self.tokenizer.convert_tokens_to_string(names[:count]).strip()
                shorter = min(len(before), len(now))
                added = now[next((i for i in range(shorter) if before[i] != now[i]), shorter) :]
                starts = not before or added[:1].isspace()
                tokens.append((WORD_START if starts else "") + added.strip())
                before = now
            return tokens
        found = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        offsets = found["offset_mapping"]
        if self._has_names(text, found["input_ids"]):
            offsets = self._plain.encode(text, add_special_tokens=False).offsets
        last = 0
        for begin, end in offsets:
            piece = text[max(begin, last) : end]  # several tokens may belong to one character
            starts = last == 0 == begin or piece[:1].isspace() or text[last:begin].isspace()
            tokens.append((WORD_START if starts else "") + piece.strip())
            last = max(last, end)
        return tokens

    def _has_names(self, line: str, row: list[int]) -> bool:
        """Whether `row`, the ids of the unmodified tokenizer, has special tokens that `line` names."""
        unknown = self.tokenizer.unk_token_id  # also that of a word
        return self.tokenizer.unk_token in line or bool(self._specials.intersection(row) - {unknown})

    def _as_text(self, line: str, row: list[int], block: Block, number: int) -> list[int]:
        """The ids of a line in which `row`, those of the unmodified tokenizer, has special tokens."""
        if not self._has_names(line, row):
            return row  # an unknown word, not the name of a special token
        if self._plain is not None:
            found = self._plain.encode(line, add_special_tokens=False).ids
        else:
            found = self.tokenizer(line, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        if self._specials.intersection(found) - {self.tokenizer.unk_token_id}:
            raise UserError(
                f"{block.path}, line {block.first_line + number}: contains the name of a special token of "
                f"{self.name}, which this tokenizer cannot read as text; remove it from the text"
            )
        return found

    @cached_property
    def _plain(self) -> Any:
        """The tokenizer without special tokens; None for one that is written in Python."""
        if not self.tokenizer.is_fast:
            return None
        from tokenizers import Tokenizer

        plain = Tokenizer.from_str(json.dumps(text_only(self.tokenizer)))
        plain.encode_special_tokens = True
        return plain


def has_divided_names(tokenizer: Any) -> bool:
    """Whether `text_only` divides the names of special tokens."""
    return tokenizer.is_fast and type(tokenizer.backend_tokenizer.model).__name__ in DIVIDED


def text_only(tokenizer: Any) -> dict[str, Any]:
    """The tokenizer.json of a tokenizer that, with `split_special_tokens`, reads every text as text.

    The option suffices unless the model looks whole words up (`DIVIDED`): its vocabulary contains the names
    of special tokens, which it would still find. They are therefore divided after their first character.
    """
    content = json.loads(tokenizer.backend_tokenizer.to_str()) | {"truncation": None, "padding": None}
    if has_divided_names(tokenizer):
        names = sorted({token for token in tokenizer.all_special_tokens if len(token) > 1})
        divided = [
            {
                "type": "Split",
                "pattern": {"Regex": f"{re.escape(name[0])}(?={re.escape(name[1:])})"},
                "behavior": "Isolated",
                "invert": False,
            }
            for name in names
        ]
        before = [content["pre_tokenizer"]] if content["pre_tokenizer"] else []
        content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [*before, *divided]}
    return content


def load_transformers(name: str) -> Any:
    """The tokenizer of a folder or hub name; raises `UserError` if Transformers cannot load it."""
    with needed_by(name):
        from transformers import AutoTokenizer
    try:
        return AutoTokenizer.from_pretrained(
            name, local_files_only=Path(name).is_dir(), trust_remote_code=False
        )
    except Exception as error:  # Transformers raises errors of many kinds
        if isinstance(error, ImportError) and "sacremoses" in str(error):
            raise UserError(
                f"{name}: FlauBERT's tokenizer needs sacremoses: pip install sacremoses"
            ) from None
        reason = " ".join(str(error).split())[:200]
        where = "" if Path(name).is_dir() else ", and no folder or model on the Hugging Face hub of that name"
        raise UserError(f"{name}: not a tokenizer that Transformers loads{where} ({reason})") from None


def ends_of_a_text(tokenizer: Any, name: str) -> tuple[int, int]:
    """The tokenizer's ids before and after a text; `UserError` if it lacks a special token or adds others.

    They are what it adds to an empty text: FlauBERT's `cls_token` is `</s>`, but a text begins with `<s>`.
    """
    tokens = [f"{token}_token" for token in ("cls", "pad", "sep", "unk")]
    if missing := [token for token in tokens if getattr(tokenizer, f"{token}_id", None) is None]:
        raise UserError(
            f"{name}: has no {' and no '.join(missing)}; use the tokenizer of an encoder (RoBERTa, BERT, ...)"
        )
    ids = tokenizer("", verbose=False)["input_ids"]
    added = len(ids) - len(tokenizer("", add_special_tokens=False, verbose=False)["input_ids"])
    if added != 2:
        raise UserError(
            f"{name}: adds {added} special tokens to a text, not one before and one after it; use the "
            "tokenizer of an encoder (RoBERTa, BERT, ...)"
        )
    return int(ids[0]), int(ids[-1])


def fairseq_order(tokenizer: Any, ends: tuple[int, int], name: str) -> NDArray[np.int64]:
    """(V,) the tokenizer's id of each id of the dictionary; `ends` are those before and after a text.

    The same ids, if padding and the unknown token have those of fairseq. Raises `UserError`, naming the
    tokenizer `name`, if one of them has two roles.
    """
    size = max(tokenizer.get_vocab().values()) + 1
    if tokenizer.pad_token_id == PAD and tokenizer.unk_token_id == UNK:
        return np.arange(size)
    first = [ends[0], int(tokenizer.pad_token_id), ends[1], int(tokenizer.unk_token_id)]
    if len(set(first)) < len(first):
        # XLM's convention is to begin a text with its separator.
        if first[0] != first[2] or len(set(first)) != len(first) - 1:
            raise UserError(
                f"{name}: {tokenizer.pad_token} and {tokenizer.unk_token} have another role, too; such a "
                "tokenizer is not supported"
            )
        if tokenizer.bos_token_id in (None, *first):
            raise UserError(f"{name}: begins texts with its separator, and has no other token for <s>")
        first[0] = tokenizer.bos_token_id
    return np.concatenate([first, np.setdiff1d(np.arange(size), first)])


def dictionary_of(tokenizer: Any, order: NDArray[np.int64]) -> Dictionary:
    """fairseq's dictionary of a tokenizer's ids in an order; its mask token is `<mask>`.

    An id that has no token, or one that a dict.txt cannot contain, is padding.
    """
    by_id: Mapping[int, str] = {index: token for token, index in tokenizer.get_vocab().items()}
    words = Dictionary()
    for index in order[len(SPECIALS) :].tolist():
        token = by_id.get(index, "")
        if not token or set(token) & set("\r\n") or (token == MASK and index != tokenizer.mask_token_id):
            token = f"{PADDING_PREFIX}{index:04d}"
        words.append(MASK if index == tokenizer.mask_token_id else token, 0)
    return words
