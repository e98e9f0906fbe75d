"""Tokenizer files of a from_pretrained folder: same ids as the binarized data.

Segmentation uses all tokens of the SentencePiece model, and a token that `dict.txt` lacks is `<unk>`: 250,000
tokens and 32,000 types for XLM-R's. A `tokenizer.json` cannot say that: in a Unigram model of the
`tokenizers` library an id is the place of a piece in its vocabulary, so foreign pieces would get ids of their
own, and leaving them out segments text differently. `BartphoTokenizer` of Transformers is made of just these
two files. It does all of it but for what truncation leaves of a long text; `tokenization_pieces.py` does that
too and is put into the folder.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from common.errors import UserError
from common.files import atomic_write
from preprocess import dictionary as fairseq_dictionary
from preprocess.tokenizer import load_model

from .tokenization_pieces import PieceTokenizer

CONFIG = "tokenizer_config.json"
CODE = Path(__file__).with_name("tokenization_pieces.py")
STANDARD = "BartphoTokenizer"
FILES = {"vocab_file": "sentencepiece.bpe.model", "monolingual_vocab_file": "dict.txt"}
"""`BartphoTokenizer`'s names."""
MASK = "<mask>"
SPECIAL_TOKENS = {
    "bos_token": "<s>",
    "cls_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": MASK,
}


@dataclass(frozen=True)
class TextFormat:
    """How text becomes rows of ids."""

    longest: int
    """Tokens of the longest row."""
    keep_eos: bool = False
    """Whether a row that is cut ends in `</s>`."""
    normalize_apostrophes: bool = False
    plain_text: bool = True
    """Whether `<mask>`, `</s>`... in a text are text. A masked language model wants to be given `<mask>`."""


def write_tokenizer(
    folder: str | os.PathLike[str],
    sentencepiece_model: str | os.PathLike[str],
    dictionary: str | os.PathLike[str],
    text_format: TextFormat,
) -> PieceTokenizer:
    """Write the tokenizer of a dictionary into the existing `folder`, and return it as it loads from there.

    `AutoTokenizer` loads it as `PieceTokenizer` with `trust_remote_code=True`. Without, it is
    `BartphoTokenizer`, whose ids differ in two cases: a text that is cut always ends in `</s>`, and a control
    character that Python takes for white space is `<unk>` instead of nothing. With `normalize_apostrophes` it
    does not load without. Raises `UserError` where the files are malformed or Transformers reads the
    dictionary otherwise than fairseq.
    """
    folder = Path(folder)
    load_model(str(sentencepiece_model))  # says what is wrong with it in one line
    words = fairseq_dictionary.load(str(dictionary))
    for name, source in zip(FILES.values(), (sentencepiece_model, dictionary), strict=True):
        shutil.copyfile(source, folder / name)
    settings = {
        "model_max_length": text_format.longest,
        "split_special_tokens": text_format.plain_text,
        "keep_eos": text_format.keep_eos,
        "normalize_apostrophes": text_format.normalize_apostrophes,
    }
    tokenizer = PieceTokenizer(**{key: str(folder / name) for key, name in FILES.items()}, **settings)
    _check_vocabulary(Path(dictionary), words, tokenizer)
    config = {
        # Loaded where trust_remote_code is not given. Reading an apostrophe otherwise is beyond it.
        "tokenizer_class": PieceTokenizer.__name__ if text_format.normalize_apostrophes else STANDARD,
        "auto_map": {"AutoTokenizer": [f"{CODE.stem}.{PieceTokenizer.__name__}", None]},
        **SPECIAL_TOKENS,
        **settings,
    }
    shutil.copyfile(CODE, folder / CODE.name)
    atomic_write(folder / CONFIG, json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    return PieceTokenizer.from_pretrained(folder)


def _check_vocabulary(path: Path, words: fairseq_dictionary.Dictionary, tokenizer: PieceTokenizer) -> None:
    wanted = dict(words.index)
    wanted.setdefault(MASK, len(words))
    found = tokenizer.get_vocab()
    for symbol, index in wanted.items():
        if found.get(symbol) != index:
            raise UserError(
                f"{path}: '{symbol}' is type {index} in fairseq, but {found.get(symbol, 'none')} for "
                "Transformers; give a dictionary whose symbols are without white space and stand there once"
            )
