"""The files of a from_pretrained folder: tokenizer and fairseq settings written, model and settings read.

The tokenizer uses all tokens of the SentencePiece model for segmentation, and maps tokens that are not in
dict.txt to `<unk>` (XLM-R: 250,000 tokens, 32,000 vocabulary entries). A tokenizer.json cannot express that:
in a Unigram model of the `tokenizers` library, the id of a token is its position in the vocabulary, so tokens
that are not in dict.txt would get ids of their own, and without them the segmentation changes.
`BartphoTokenizer` of Transformers reads exactly these two files. It differs only in how it truncates long
texts; `tokenization_pieces.py`, which is copied into the folder, truncates as fairseq does. Data with a
Transformers tokenizer (CamemBERT, XLM-R, RoBERTa) keep it.

The model may be of any family in `FAMILIES`: the three classes compute the same function.

fairseq.json and fairseq_extra.safetensors contain what only fairseq needs, for the way back (to_fairseq.py).
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    AutoTokenizer,
    CamembertForMaskedLM,
    CamembertForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
    XLMRobertaForMaskedLM,
    XLMRobertaForSequenceClassification,
)
from transformers.utils.logging import disable_progress_bar

from roberta_small.common.errors import UserError, enumerate_some
from roberta_small.common.files import atomic_write, read_json
from roberta_small.eval.model import Model
from roberta_small.export.transformers.roberta import Source, leftover
from roberta_small.export.transformers.tokenization_pieces import PieceTokenizer
from roberta_small.fairseq_plugin.checkpoints.loading import READ_ERRORS, refusal, verify_checksums
from roberta_small.preprocess import dictionary as fairseq_dictionary
from roberta_small.preprocess.dictionary import MASK
from roberta_small.preprocess.tokenizer import load_model
from roberta_small.preprocess.transformers_tokenizer import text_only

TOKENIZER_CONFIG = "tokenizer_config.json"
CODE = Path(__file__).with_name("tokenization_pieces.py")
STANDARD = "BartphoTokenizer"
GENERAL_CLASS = "PreTrainedTokenizerFast"
"""The class of tokenizers that are defined by their tokenizer.json alone."""
TOKENIZER_FILES = {"vocab_file": "sentencepiece.bpe.model", "monolingual_vocab_file": "dict.txt"}
"""Argument of `BartphoTokenizer` -> file name."""
SPECIAL_TOKENS = {
    "bos_token": "<s>",
    "cls_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": MASK,
}
SETTINGS = "fairseq.json"
EXTRA = "fairseq_extra.safetensors"
KEYS = {"head": lambda head: head and str(head), "activation_dropout": float, "task": dict}
"""Key of fairseq.json -> type of its value."""
FAMILIES: dict[str, tuple[type[PreTrainedModel], type[PreTrainedModel]]] = {
    "roberta": (RobertaForMaskedLM, RobertaForSequenceClassification),
    "camembert": (CamembertForMaskedLM, CamembertForSequenceClassification),
    "xlm-roberta": (XLMRobertaForMaskedLM, XLMRobertaForSequenceClassification),
}
"""`model_type` of the configuration -> masked language model and classifier."""
ENCODER_ONLY = "Model"
"""End of the name of an architecture without head (`CamembertModel`)."""
LM_HEAD = "lm_head."
SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
REMEDY = "use a folder written by save_pretrained or roberta-small export transformers"
LOAD_ERRORS = (SafetensorError, pickle.UnpicklingError, ImportError, *READ_ERRORS)


@dataclass(frozen=True)
class TextFormat:
    """How a tokenizer converts text to ids."""

    longest: int
    """Maximum number of tokens."""
    keep_eos: bool = False
    """Whether a truncated text ends in `</s>`."""
    normalize_apostrophes: bool = False
    plain_text: bool = True
    """Whether `<mask>`, `</s>` and so on in a text are ordinary text; False for a masked language model."""


def write_tokenizer(
    folder: str | os.PathLike[str],
    sentencepiece_model: str | os.PathLike[str],
    dictionary: str | os.PathLike[str],
    text_format: TextFormat,
) -> PieceTokenizer:
    """Write the tokenizer into the existing `folder`, and return it as loaded from there.

    With `trust_remote_code=True`, `AutoTokenizer` loads it as `PieceTokenizer`, otherwise as
    `BartphoTokenizer`. The ids of the latter differ in two cases: a truncated text always ends in `</s>`, and
    a control character that Python treats as white space is `<unk>` instead of nothing. With
    `normalize_apostrophes`, the tokenizer loads only with `trust_remote_code=True`.

    Raises `UserError` if a file is malformed, or if Transformers and fairseq read the dictionary differently.
    """
    folder = Path(folder)
    load_model(str(sentencepiece_model))  # for its error message
    words = fairseq_dictionary.load(str(dictionary))
    for name, source in zip(TOKENIZER_FILES.values(), (sentencepiece_model, dictionary), strict=True):
        shutil.copyfile(source, folder / name)
    settings: dict[str, Any] = {
        "model_max_length": text_format.longest,
        "split_special_tokens": text_format.plain_text,
        "keep_eos": text_format.keep_eos,
        "normalize_apostrophes": text_format.normalize_apostrophes,
    }
    files = {key: str(folder / name) for key, name in TOKENIZER_FILES.items()}
    tokenizer = PieceTokenizer(**settings | files)
    _check_vocabulary(Path(dictionary), words, tokenizer)
    config = {
        # The class without trust_remote_code. The standard one cannot normalize apostrophes.
        "tokenizer_class": PieceTokenizer.__name__ if text_format.normalize_apostrophes else STANDARD,
        "auto_map": {"AutoTokenizer": [f"{CODE.stem}.{PieceTokenizer.__name__}", None]},
        **SPECIAL_TOKENS,
        **settings,
    }
    shutil.copyfile(CODE, folder / CODE.name)
    atomic_write(folder / TOKENIZER_CONFIG, json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    return PieceTokenizer.from_pretrained(folder)


def write_transformers_tokenizer(
    folder: str | os.PathLike[str],
    tokenizer: PreTrainedTokenizerBase,
    dictionary: Path,
    text_format: TextFormat,
) -> PreTrainedTokenizerBase:
    """Write a Transformers tokenizer into the existing `folder`, and return it as loaded from there.

    With `plain_text`, it reads the names of special tokens as text, as in training. For a Unigram model, this
    needs a tokenizer.json that only the general class loads as it is. The fairseq dictionary is copied beside
    it, for the way back.
    """
    folder = Path(folder)
    tokenizer.model_max_length = text_format.longest
    tokenizer.save_pretrained(folder)
    if text_format.plain_text:
        config = read_json(folder / TOKENIZER_CONFIG, "save the tokenizer again")
        config["split_special_tokens"] = True
        if tokenizer.is_fast:
            content = text_only(tokenizer)
            if content["model"]["type"] == "Unigram":
                config["tokenizer_class"] = GENERAL_CLASS
                atomic_write(folder / "tokenizer.json", json.dumps(content, ensure_ascii=False) + "\n")
        atomic_write(folder / TOKENIZER_CONFIG, json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    shutil.copyfile(dictionary, folder / "dict.txt")
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def _check_vocabulary(path: Path, words: fairseq_dictionary.Dictionary, tokenizer: PieceTokenizer) -> None:
    wanted = dict(words.index)
    wanted.setdefault(MASK, len(words))
    found = tokenizer.get_vocab()
    for symbol, index in wanted.items():
        if found.get(symbol) != index:
            raise UserError(
                f"{path}: '{symbol}' has id {index} in fairseq, but {found.get(symbol, 'none')} in "
                "Transformers; use a dictionary without duplicates and without white space in its symbols"
            )


@dataclass(frozen=True)
class Carried:
    """What only fairseq needs: the content of fairseq.json and fairseq_extra.safetensors."""

    head: str | None = None
    """Name of the classification head."""
    activation_dropout: float = 0.0
    task: dict[str, Any] = field(default_factory=dict)
    """`shorten_method` and `keep_eos` of a classifier."""
    weights: dict[str, Tensor] = field(default_factory=dict)
    """Weights without a counterpart in Transformers (see `roberta.leftover`)."""


def write_carried(folder: Path, model: Model, source: Source) -> None:
    """Write fairseq.json and fairseq_extra.safetensors; `source` is the checkpoint of `model`."""
    task = {}
    if model.checkpoint.is_classifier:
        config = model.checkpoint.task_config()
        task = {"shorten_method": str(config.shorten_method), "keep_eos": config.keep_eos}
    dropout = float(source.arguments.activation_dropout)
    content = {"head": source.head, "activation_dropout": dropout, "task": task}
    atomic_write(folder / SETTINGS, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    extra = leftover(source.weights, head=source.head, lm_head=source.head is None)
    save_file({name: tensor.clone().contiguous() for name, tensor in extra.items()}, folder / EXTRA)
    # safetensors creates files that only their owner may read.
    for path in folder.glob("*.safetensors"):
        shutil.copymode(folder / SETTINGS, path)


def read_carried(folder: Path) -> Carried:
    """Read both files, or return defaults for missing ones; raises `UserError` if one is malformed."""
    content: dict[str, Any] = {}
    weights: dict[str, Tensor] = {}
    if (path := folder / SETTINGS).is_file():
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            content = {key: kind(content[key]) for key, kind in KEYS.items()}
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"{path}: malformed; remove it, or write the folder again with "
                "roberta-small export transformers"
            ) from None
    if (path := folder / EXTRA).is_file():
        try:
            weights = load_file(path)
        except (SafetensorError, OSError):
            raise UserError(
                f"{path}: corrupt or truncated; remove it, or write the folder again with "
                "roberta-small export transformers"
            ) from None
    return Carried(**content, weights=weights)


@dataclass(frozen=True)
class Loaded:
    """The model of a folder, in fp32 on the CPU and in evaluation mode."""

    model: PreTrainedModel
    random: tuple[str, ...] = ()
    """Weights of the LM head that the folder of a bare encoder lacks."""
    unused: tuple[str, ...] = ()
    """Weights of the folder without a place in the model, such as a pooler."""


def load_folder(folder: str | os.PathLike[str], *, attention: str = "sdpa") -> PreTrainedModel:
    """The model of a masked language model or classifier; errors as for `load_pretrained`."""
    folder = Path(folder)
    loaded = load_pretrained(folder, attention=attention)
    if loaded.random:
        raise UserError(
            f"{folder}: an encoder without a head; fine-tune it first, train.sh --pretrained {folder}"
        )
    return loaded.model


def load_pretrained(folder: Path, *, attention: str = "sdpa") -> Loaded:
    """Load the model of a folder of `save_pretrained`; `attention` as in Transformers.

    A bare encoder gets an LM head with random weights, always the same. Pickled weights (pytorch_model.bin)
    are read if there are no safetensors, without executing code.

    Raises `UserError` if the folder or one of its files is missing or malformed, if the architecture is not
    one of `FAMILIES`, and if weights are missing, which would otherwise be random.
    """
    if not sys.stderr.isatty():  # Transformers draws its bar in pipes and files, too
        disable_progress_bar()
    kind, encoder_only = _architecture(folder)
    safetensors = any((folder / name).is_file() for name in SAFETENSORS)
    if not safetensors and not any((folder / name).is_file() for name in PICKLES):
        raise UserError(
            f"{folder}: no weights (model.safetensors or pytorch_model.bin); download or save the model again"
        )
    try:
        if not safetensors:
            for path in sorted(folder.glob("pytorch_model*.bin")):
                with path.open("rb") as stream:
                    verify_checksums(stream)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            loaded: tuple[PreTrainedModel, dict[str, Any]] = kind.from_pretrained(
                folder,
                local_files_only=True,
                use_safetensors=safetensors,
                weights_only=True,
                dtype=torch.float32,
                attn_implementation=attention,
                output_loading_info=True,
            )  # type: ignore[assignment]  # a pair, because of the last argument
            model, report = loaded
    except pickle.UnpicklingError as error:
        raise UserError(f"{folder}: pytorch_model.bin {refusal(error)}") from None
    except LOAD_ERRORS as error:
        reason = " ".join(str(error).split())[:160]
        raise UserError(
            f"{folder}: the model cannot be loaded ({reason}); download or save it again"
        ) from None
    missing = sorted(report["missing_keys"])
    random = tuple(name for name in missing if encoder_only and name.startswith(LM_HEAD))
    if absent := [name for name in missing if name not in random]:
        raise UserError(f"{folder}: weights are missing: {enumerate_some(absent)}; download or save it again")
    return Loaded(model.eval(), random, tuple(sorted(report["unexpected_keys"])))


def is_classifier(model: PreTrainedModel) -> bool:
    """Whether the model has a classification head; otherwise it is a masked language model."""
    return any(isinstance(model, classifier) for _, classifier in FAMILIES.values())


def class_names(model: PreTrainedModel) -> list[str]:
    """Names of the classes, in the order of the logits."""
    names = {int(k): name for k, name in (model.config.id2label or {}).items()}
    return [names[k] for k in sorted(names)]


def _architecture(folder: Path) -> tuple[type[PreTrainedModel], bool]:
    """The class of the model, and whether the folder contains only its encoder."""
    path = folder / "config.json"
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; {REMEDY}")
    if not path.is_file():
        raise UserError(f"{path}: no such file; {REMEDY}")
    try:
        config: Any = json.loads(path.read_text(encoding="utf-8"))
        name = str((config.get("architectures") or [None])[0])
        family = FAMILIES.get(config.get("model_type"), ())
    except (ValueError, AttributeError, TypeError):
        raise UserError(f"{path}: not the configuration of a model; write the folder again") from None
    for kind in family:
        if kind.__name__ == name:
            return kind, False
    if family and name == family[0].__name__.replace("ForMaskedLM", ENCODER_ONLY):
        return family[0], True
    known = ", ".join(kind.__name__ for kinds in FAMILIES.values() for kind in kinds)
    raise UserError(
        f"{path}: {name} of type '{config.get('model_type')}' is not supported; use a RoBERTa, CamemBERT or "
        f"XLM-RoBERTa ({known}, or the encoder alone)"
    )
