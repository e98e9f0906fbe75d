"""The tokenizer of a data set: a SentencePiece model, a Transformers tokenizer, a checkpoint's, or a new one.

`choose` finds out which of them a path or name is; a `Tokenizer` encodes text to the ids of a fairseq
dictionary, and is saved beside the data as `tokenizer/`.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from roberta_small.common import manifest
from roberta_small.common.data_folder import INPUTS, REPORT, read_report, shard_name
from roberta_small.common.errors import UserError
from roberta_small.common.files import SHIPPED, SHIPPED_NAME, atomic_write, read_object
from roberta_small.preprocess.dictionary import BOS, EOS, NO_SEPARATOR
from roberta_small.preprocess.options import TRAIN
from roberta_small.preprocess.readers.lines import read_text_lines
from roberta_small.preprocess.tokenization import vocabulary
from roberta_small.preprocess.tokenization.encoder import Encoder, TextEncoder, parse_model
from roberta_small.preprocess.tokenization.symbols import (
    BPE,
    CHARACTERS,
    ENCODER,
    MERGES,
    WORDS,
    has_characters,
    write_tokenizer,
)
from roberta_small.preprocess.tokenization.transformers_encoder import TransformersEncoder

SENTENCEPIECE, TRANSFORMERS = "sentencepiece", "transformers"
"""The kinds of tokenizers."""
DICTIONARY = "dict.txt"
FOLDER = "tokenizer"
"""Inside a data folder."""
MODEL = "sentencepiece.bpe.model"
TRANSFORMERS_CONFIG = "tokenizer_config.json"
TRANSFORMERS_FILES = ("tokenizer.json", TRANSFORMERS_CONFIG, "vocab.json")
"""A folder with one of these files has a Transformers tokenizer."""
MODEL_CONFIG = "config.json"
"""Of a model; it implies the class of the tokenizer if there is no tokenizer_config.json."""
VOCABULARIES = ("vocab.txt", "spiece.model", "spm.model")
"""Files of a Transformers tokenizer if `MODEL_CONFIG` is beside them; other programs use these names, too."""
FURTHER_FILES = (
    *VOCABULARIES,
    MODEL,
    "merges.txt",
    "bpe.codes",
    "added_tokens.json",
    "special_tokens_map.json",
)
"""Files that also decide the ids of a Transformers tokenizer."""
PAIR_CLASSES = ("BartphoTokenizer", "PieceTokenizer")
"""Classes of Transformers tokenizers whose files are a SentencePiece model and a fairseq dict.txt."""
FILE_SUFFIXES = (".model", ".pt", ".pth", ".safetensors", ".bin", ".txt", ".json")
"""A name with one of these suffixes is a file, not a name on the Hugging Face hub."""
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
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
    model: bytes = b""
    """The content of a SentencePiece model's file. Otherwise none: the encoder saves itself."""
    init_token: int = BOS
    """Id before a text (`--init-token`)."""
    separator_token: int = EOS
    """Id between the texts of a pair (`--separator-token`); `NO_SEPARATOR` if only the end of the first one
    separates them."""

    def save(self, folder: Path) -> None:
        """Write the tokenizer's files into a new folder."""
        folder.mkdir()
        if isinstance(self.encoder, TransformersEncoder):
            self.encoder.save(folder)
        else:
            atomic_write(folder / MODEL, self.model)

    def describe(self) -> dict[str, Any]:
        """What a data folder records of it."""
        return {
            "kind": self.kind,
            "path": FOLDER,
            "vocabulary": len(self.encoder.dictionary),
            "init_token": self.init_token,
            "separator_token": self.separator_token,
        }


@dataclass(frozen=True, kw_only=True)
class TokenizerOptions:
    """Which tokenizer a text gets."""

    tokenizer: str = TRAIN
    """The value of --tokenizer."""
    dictionary: str | None = None
    vocabulary_size: int | None = None
    """Of a tokenizer or dictionary that is made of the training text; None: it depends on the text."""
    normalize_apostrophes: bool = False

    @cached_property
    def located(self) -> Located | None:
        """The files of the tokenizer; None if it is to be trained. Errors as for `locate`."""
        return None if self.tokenizer == TRAIN else locate(self.tokenizer, self.dictionary)

    @property
    def normalizes(self) -> bool:
        """Whether apostrophes are replaced: by the option, or as for the tokenizer's own texts."""
        return self.normalize_apostrophes or bool(self.located and self.located.normalize_apostrophes)

    def tokenizer_request(self) -> tuple[dict[str, Any], list[str]]:
        """What a report records of these options, and the files behind them."""
        found = self.located
        options = {
            "tokenizer": self.tokenizer,
            "sentencepiece_model": f"{FOLDER}/{MODEL}" if found is None or found.model else None,
            **({"vocabulary_size": self.vocabulary_size} if self.vocabulary_size else {}),
            "normalize_apostrophes": self.normalizes,
        }
        return options, [] if found is None else found.files


def choose(options: TokenizerOptions, train_texts: Sequence[Path], *, workers: int = 1) -> Tokenizer:
    """The tokenizer of the options, with their number of vocabulary entries where it is made of the text.

    A file is a SentencePiece model, whose dictionary is the given one, or else its most frequent tokens or
    all of them. A folder is a Transformers tokenizer, or a checkpoint, run or data folder with a tokenizer
    of its own. "train" trains a SentencePiece model on `train_texts`. Anything else is a name on the Hugging
    Face hub. Raises `UserError` where no tokenizer can be found or loaded.
    """
    name, dictionary, size = options.tokenizer, options.dictionary, options.vocabulary_size
    found = options.located
    if options.normalizes and not options.normalize_apostrophes:
        print(f"apostrophes: replaced by ', as for the tokenizer of {name}", file=sys.stderr)
    how: Any = {"normalize_apostrophes": options.normalizes}
    texts = [str(path) for path in train_texts]
    if found is None:
        if dictionary is not None:
            raise UserError(
                f"--dict {dictionary}: cannot be combined with --tokenizer {TRAIN}, which creates "
                "a dictionary"
            )
        tokens = carried_size(texts) if size is None else vocabulary.listed_tokens(size)
        content, path = vocabulary.train_model(texts, tokens, at_most=size is None, **how), TRAIN
    else:
        if size is not None and (found.model is None or found.dictionary is not None):
            raise UserError(
                f"{vocabulary.SIZE} {size}: the tokenizer {name} has a vocabulary already; omit the option"
            )
        if found.model is None:
            if dictionary is not None and not found.symbols:
                raise UserError(
                    f"--dict {dictionary}: cannot be combined with the Transformers tokenizer {name}, which "
                    "has its own vocabulary"
                )
            encoder = found.transformers_encoder(**how)
            separator = encoder.separator_token if encoder.separates_pairs else NO_SEPARATOR
            return Tokenizer(TRANSFORMERS, encoder, b"", encoder.init_token, separator)
        content, path = found.model.read_bytes(), str(found.model)
        if found.dictionary is not None:
            fitted = Encoder.from_files(path, str(found.dictionary), **how)
            return Tokenizer(SENTENCEPIECE, fitted, content)
    model = parse_model(content, path)
    words = vocabulary.build_vocabulary(model, texts, size, workers=workers, **how)
    return Tokenizer(SENTENCEPIECE, Encoder(model, words, **how), content)


@dataclass(frozen=True)
class Located:
    """The files of a tokenizer: a SentencePiece model, or the folder or hub name of a Transformers one."""

    model: Path | None = None
    dictionary: Path | None = None
    """Of the SentencePiece model, where there is one."""
    transformers: str = ""
    symbols: str = ""
    """A kind of `symbols.py`, whose tokenizer is made from the dictionary."""
    normalize_apostrophes: bool = False
    """Whether the texts of the data or model with this tokenizer had their apostrophes replaced."""

    def transformers_encoder(self, *, normalize_apostrophes: bool = False) -> TransformersEncoder:
        """The encoder of a Transformers tokenizer, or of one that is made from a dictionary."""
        how = {"normalize_apostrophes": normalize_apostrophes}
        if not self.symbols:
            return TransformersEncoder(self.transformers, **how)
        assert self.dictionary is not None
        with tempfile.TemporaryDirectory() as folder:
            write_tokenizer(self.symbols, self.dictionary, Path(folder))
            encoder = TransformersEncoder(folder, **how)
        encoder.name = str(self.dictionary)
        return encoder

    @property
    def files(self) -> list[str]:
        """The files whose content decides the ids; none for a name on the hub."""
        if self.transformers:
            files = [Path(self.transformers, name) for name in (*TRANSFORMERS_FILES, *FURTHER_FILES)]
            return [str(path) for path in files if path.is_file()]
        found = [path for path in (self.model, self.dictionary) if path is not None]
        if self.symbols == BPE and self.dictionary is not None:
            found += [self.dictionary.with_name(name) for name in (ENCODER, MERGES)]
        return [str(path) for path in found]


def locate(name: str, dictionary: str | None = None) -> Located:
    """The tokenizer of a path or hub name, or of the weights in the package; `UserError` for none."""
    path = Path(name)
    if name == SHIPPED_NAME and not path.exists():
        path = SHIPPED
    given = Path(dictionary) if dictionary is not None else None
    if name in (WORDS, CHARACTERS):
        if given is None:
            raise UserError(f"--tokenizer {name}: needs the dictionary of the tokens, --dict dict.txt")
        return Located(dictionary=given, symbols=name)
    if path.is_file():
        return Located(path, given)
    if not path.is_dir():
        if not is_hub_name(name):
            raise UserError(
                f"{name}: no such tokenizer; specify a SentencePiece model or a folder with a tokenizer"
            )
        return Located(transformers=name)
    if (path / REPORT).is_file():
        return _of_data_folder(path, given)
    if (path / manifest.NAME).is_file():
        content = manifest.read(path) or {}
        kept = path / INPUTS
        return _of_data_folder(kept if kept.is_dir() else Path(content["data"].get("path", ".")), given)
    if (found := beside(path, given)) is not None:
        return found
    if path.resolve() == SHIPPED:
        from roberta_small.preprocess.download.command import xlmr_tokenizer

        return Located(xlmr_tokenizer(), given or path / DICTIONARY)
    if (path / DICTIONARY).is_file():
        raise UserError(
            f"{name}: contains a dictionary but no tokenizer; pass the SentencePiece model that the "
            f"dictionary was created from: --tokenizer {MODEL} --dict {path / DICTIONARY} (that of XLM-R: "
            f"roberta-small download xlmr); or, for GPT-2's BPE, put {ENCODER} and {MERGES} beside the "
            f"dictionary; or use --tokenizer {WORDS} for text that is tokenized already"
        )
    raise UserError(f"{name}: no tokenizer in this folder; specify a SentencePiece model or another folder")


def beside(folder: Path, dictionary: Path | None = None) -> Located | None:
    """The tokenizer among the files of `folder`, which also has a checkpoint; None if there is none."""
    if any((folder / FOLDER / file).is_file() for file in TRANSFORMERS_FILES):
        return Located(transformers=str(folder / FOLDER))
    path = folder / TRANSFORMERS_CONFIG
    config = read_object(path, "save the tokenizer again") if path.is_file() else {}
    kind, normalizes = config.get("tokenizer_class"), bool(config.get("normalize_apostrophes"))
    given = dictionary or folder / DICTIONARY
    fits = dictionary is not None or (given.is_file() and kind in (None, *PAIR_CLASSES))
    if (folder / MODEL).is_file() and fits:
        return Located(folder / MODEL, given, normalize_apostrophes=normalizes)
    files = (*TRANSFORMERS_FILES, MODEL, *(VOCABULARIES if (folder / MODEL_CONFIG).is_file() else ()))
    if kind not in PAIR_CLASSES and any((folder / file).is_file() for file in files):
        return Located(transformers=str(folder))
    if given.is_file() and all((given.parent / file).is_file() for file in (ENCODER, MERGES)):
        return Located(dictionary=given, symbols=BPE)
    if given.is_file() and has_characters(given):
        return Located(dictionary=given, symbols=CHARACTERS)
    return None


def is_hub_name(name: str) -> bool:
    """Whether a name that is no local path may be one on the Hugging Face hub: `MODEL` or `USER/MODEL`."""
    return HUB_NAME.fullmatch(name) is not None and not name.endswith(FILE_SUFFIXES)


def _of_data_folder(path: Path, given: Path | None) -> Located:
    """The tokenizer beside the data, else the SentencePiece model that the report names."""
    report = read_report(path)
    options = report.get("options", {})
    normalizes = bool(options.get("normalize_apostrophes"))
    if report.get("tokenizer", {}).get("kind") == TRANSFORMERS:
        return Located(transformers=str(path / FOLDER), normalize_apostrophes=normalizes)
    recorded = options.get("sentencepiece_model")
    # Running text for pre-training has its dictionary directly in the folder, or in each of its shards.
    dictionaries = [path / "input0" / "dict.txt", path / "dict.txt", path / shard_name(0) / "dict.txt"]
    for model in (path / FOLDER / MODEL, path / (recorded or ""), Path(recorded or "")):
        if model.is_file():
            found = next((file for file in dictionaries if file.is_file()), dictionaries[0])
            return Located(model, given or found, normalize_apostrophes=normalizes)
    raise UserError(f"{path}: its SentencePiece model {recorded} is missing; pass it with --tokenizer")


def carried_size(texts: Sequence[str]) -> int:
    """Number of subword tokens that suits the text: one per two distinct words, from 500 to 16,000."""
    words: set[str] = set()
    for path in texts:
        for line in read_text_lines(path):
            words.update(WORD.findall(line.casefold()))
    size = len(words) // WORDS_PER_TOKEN
    return max(SMALLEST, min(LARGEST, size - size % SMALLEST))
