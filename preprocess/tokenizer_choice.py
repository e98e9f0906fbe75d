"""The tokenizer of a data set: a SentencePiece model, a Transformers tokenizer, a checkpoint's, or a new one.

`choose` finds out which of them a path or name is; a `Tokenizer` encodes text to the ids of a fairseq
dictionary, and is saved beside the data as `tokenizer/`. Ids of a Transformers tokenizer stay as they are.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common import manifest
from common.data_folder import REPORT, read_report, shard_name
from common.errors import UserError
from common.files import atomic_write

from .dictionary import BOS, EOS, PAD, SPECIALS, UNK, Dictionary
from .options import TRAIN
from .readers.lines import Block, read_text_lines
from .tokenizer import Encoded, Encoder, TextEncoder, all_tokens, append_eos, load_model
from .vocabulary import OUTSIDE_FILE, build_vocabulary, fits_dictionary, train_model

SENTENCEPIECE, TRANSFORMERS = "sentencepiece", "transformers"
"""The kinds of tokenizers."""
FOLDER = "tokenizer"
"""Inside a data folder."""
MODEL = "sentencepiece.bpe.model"
TRANSFORMERS_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.json", MODEL)
SMALLEST, LARGEST = 500, 16_000
"""Subword tokens of a new tokenizer."""
WORDS_PER_TOKEN = 2
"""Distinct words of the training text for each token of a new tokenizer."""
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Tokenizer:
    """A tokenizer with its dictionary."""

    kind: str
    """`SENTENCEPIECE` or `TRANSFORMERS`."""
    encoder: TextEncoder
    files: tuple[Path, ...] = ()
    """Of a SentencePiece model: the file. Otherwise none: the encoder saves itself."""
    init_token: int = BOS
    """Id before a text (`--init-token`)."""
    separator_token: int = EOS
    """Id between the texts of a pair (`--separator-token`), and after each."""

    def save(self, folder: Path) -> None:
        """Write the tokenizer's files into a new folder."""
        folder.mkdir()
        if isinstance(self.encoder, TransformersEncoder):
            self.encoder.tokenizer.save_pretrained(folder)
        else:
            shutil.copyfile(self.files[0], folder / MODEL)

    def describe(self) -> dict[str, Any]:
        """What a data folder records of it."""
        return {
            "kind": self.kind,
            "path": FOLDER,
            "vocabulary": len(self.encoder.dictionary),
            "init_token": self.init_token,
            "separator_token": self.separator_token,
        }


class TransformersEncoder:
    """Text to the ids of a Transformers tokenizer of the RoBERTa family, closed by its separator token.

    RoBERTa (byte-level BPE), CamemBERT and XLM-R (SentencePiece) keep ids 0 to 3 for special tokens as
    fairseq does, so that a fairseq dictionary with the same ids exists: it lists the tokens from id 4 on.
    Raises `UserError` for a tokenizer that cannot be loaded, or with other special tokens.
    """

    def __init__(self, name: str, *, normalize_apostrophes: bool = False) -> None:
        self.name = name
        self.normalize_apostrophes = normalize_apostrophes
        self.tokenizer = _load_transformers(name)
        self.dictionary = _dictionary_of(self.tokenizer.get_vocab(), name)
        for token, wanted in (("pad_token_id", PAD), ("unk_token_id", UNK)):
            if (found := getattr(self.tokenizer, token)) != wanted:
                raise UserError(
                    f"{name}: {token} is {found}, not {wanted}: not a tokenizer of the RoBERTa family "
                    "(RoBERTa, CamemBERT, XLM-R); other tokenizers are not supported"
                )
        if None in (self.tokenizer.cls_token_id, self.tokenizer.sep_token_id):
            raise UserError(f"{name}: no cls_token or sep_token; give the tokenizer of a RoBERTa")

    def __call__(self, block: Block) -> Encoded:
        """Encode one block; raises `UserError` where it is not UTF-8."""
        lines = block.lines(normalize_apostrophes=self.normalize_apostrophes)
        rows = self.tokenizer(lines, add_special_tokens=False, verbose=False)["input_ids"]
        sizes = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        ids = np.fromiter((i for row in rows for i in row), dtype=np.int32, count=int(sizes.sum()))
        return Encoded(block, append_eos(ids, sizes, self.tokenizer.sep_token_id), sizes + 1)


def choose(
    name: str,
    dictionary: str | None,
    train_texts: Sequence[Path],
    scratch: Path,
    *,
    normalize_apostrophes: bool = False,
    workers: int = 1,
) -> Tokenizer:
    """The tokenizer that `name` stands for.

    A file is a SentencePiece model, whose dictionary is `dictionary` or else all its tokens. A folder is a
    Transformers tokenizer, or a checkpoint, run or data folder with a tokenizer of its own. "train" trains a
    SentencePiece model on `train_texts` in the folder `scratch`. Anything else is a name on the Hugging Face
    hub. Raises `UserError` where no tokenizer can be found or loaded.
    """
    how = {"normalize_apostrophes": normalize_apostrophes}
    if name == TRAIN:
        if dictionary is not None:
            raise UserError(
                f"--dict {dictionary}: not with --tokenizer {TRAIN}, which makes its own dictionary"
            )
        texts = [str(path) for path in train_texts]
        content = train_model(texts, carried_size(texts), at_most=True, **how)
        atomic_write(scratch / MODEL, content)
        return _sentencepiece(scratch / MODEL, None, texts, scratch, workers=workers, **how)
    found = locate(name, dictionary)
    if found.model is not None:
        texts = [str(path) for path in train_texts]
        return _sentencepiece(found.model, found.dictionary, texts, scratch, workers=workers, **how)
    if dictionary is not None:
        raise UserError(f"--dict {dictionary}: not with {name}, whose vocabulary is its own")
    encoder = TransformersEncoder(found.transformers, **how)
    special = encoder.tokenizer
    return Tokenizer(
        TRANSFORMERS, encoder, init_token=special.cls_token_id, separator_token=special.sep_token_id
    )


@dataclass(frozen=True)
class Located:
    """The files of a tokenizer: a SentencePiece model, or the folder or hub name of a Transformers one."""

    model: Path | None = None
    dictionary: Path | None = None
    """Of the SentencePiece model, where there is one."""
    transformers: str = ""

    @property
    def files(self) -> list[str]:
        """The files whose content decides the ids; none for a name on the hub."""
        if self.transformers:
            files = [Path(self.transformers, name) for name in TRANSFORMERS_FILES]
            return [str(path) for path in files if path.is_file()]
        return [str(path) for path in (self.model, self.dictionary) if path is not None]


def locate(name: str, dictionary: str | None = None) -> Located:
    """The tokenizer that a path stands for.

    Raises `UserError` for a folder without tokenizer, and a path that does not exist.
    """
    path = Path(name)
    given = Path(dictionary) if dictionary is not None else None
    if path.is_file():
        return Located(path, given)
    if not path.is_dir():
        if path.suffix == ".model" or name.startswith((".", "/", "~")) or name.count("/") > 1:
            raise UserError(
                f"{name}: no such tokenizer; give a SentencePiece model or a folder with a tokenizer"
            )
        return Located(transformers=name)
    if (path / REPORT).is_file():
        return _of_data_folder(path, given)
    if (path / manifest.NAME).is_file():
        content = manifest.read(path) or {}
        return _of_data_folder(Path(content["data"].get("path", ".")), given)
    if (path / MODEL).is_file() and (given or (path / "dict.txt").is_file()):
        return Located(path / MODEL, given or path / "dict.txt")
    if any((path / file).is_file() for file in TRANSFORMERS_FILES):
        return Located(transformers=name)
    if (path / "dict.txt").is_file():
        raise UserError(
            f"{name}: has a dictionary but no tokenizer; give the SentencePiece model that the dictionary "
            f"was made from: --tokenizer {MODEL} --dict {path / 'dict.txt'} (that of XLM-R: "
            "python -m preprocess download xlmr)"
        )
    raise UserError(f"{name}: no tokenizer in this folder; give a SentencePiece model or another folder")


def _of_data_folder(path: Path, given: Path | None) -> Located:
    """The tokenizer beside the data, else the SentencePiece model that the report names."""
    report = read_report(path)
    if report.get("tokenizer", {}).get("kind") == TRANSFORMERS:
        return Located(transformers=str(path / FOLDER))
    recorded = report.get("options", {}).get("sentencepiece_model")
    # Running text for pre-training has its dictionary directly in the folder, or in each of its shards.
    dictionaries = [path / "input0" / "dict.txt", path / "dict.txt", path / shard_name(0) / "dict.txt"]
    for model in (path / FOLDER / MODEL, Path(recorded) if recorded else None):
        if model is not None and model.is_file():
            found = next((file for file in dictionaries if file.is_file()), dictionaries[0])
            return Located(model, given or found)
    raise UserError(f"{path}: its SentencePiece model {recorded} is missing; give it with --tokenizer")


def carried_size(texts: Sequence[str]) -> int:
    """Subword tokens that the text is enough for: one for two distinct words, from 500 to 16,000."""
    words: set[str] = set()
    for path in texts:
        for line in read_text_lines(path):
            words.update(WORD.findall(line.casefold()))
    size = len(words) // WORDS_PER_TOKEN
    return max(SMALLEST, min(LARGEST, size - size % SMALLEST))


def _sentencepiece(
    path: Path,
    dictionary: Path | None,
    texts: Sequence[str],
    scratch: Path,
    *,
    normalize_apostrophes: bool,
    workers: int,
) -> Tokenizer:
    """A SentencePiece model with a dictionary; without one, that of all its tokens, counted in the texts."""
    if dictionary is None:
        model = load_model(str(path))
        size = OUTSIDE_FILE + sum(
            fits_dictionary(model, i, token) for i, token in enumerate(all_tokens(model))
        )
        words = build_vocabulary(
            model, texts, size, normalize_apostrophes=normalize_apostrophes, workers=workers
        )
        dictionary = scratch / "dict.txt"
        atomic_write(dictionary, words.text())
    encoder = Encoder(str(path), str(dictionary), normalize_apostrophes=normalize_apostrophes)
    return Tokenizer(SENTENCEPIECE, encoder, (path,))


def _load_transformers(name: str) -> Any:
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise UserError(
            f"{name}: needs the package transformers; install it: pip install transformers"
        ) from None
    try:
        return AutoTokenizer.from_pretrained(name, local_files_only=Path(name).is_dir())
    except Exception as error:  # Transformers raises errors of many kinds
        reason = " ".join(str(error).split())[:200]
        where = "" if Path(name).is_dir() else ", and no folder or model on the Hugging Face hub of that name"
        raise UserError(f"{name}: not a tokenizer that Transformers loads{where} ({reason})") from None


def _dictionary_of(vocabulary: dict[str, int], name: str) -> Dictionary:
    """fairseq's dictionary with the ids of a Transformers vocabulary; ids without a token are padding."""
    by_id = {index: token for token, index in vocabulary.items()}
    words = Dictionary()
    for index in range(len(SPECIALS), max(by_id) + 1):
        token = by_id.get(index, f"madeupword{index:04d}")
        if not token or "\n" in token or "\r" in token:
            raise UserError(f"{name}: token {index}, {token!r}, cannot stand in a fairseq dictionary")
        words.append(token, 0)
    return words
