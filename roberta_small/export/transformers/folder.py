"""The files of a from_pretrained folder: tokenizer and fairseq settings written, model and settings read.

The tokenizer uses all tokens of the SentencePiece model for segmentation, and maps tokens that are not in
dict.txt to `<unk>` (XLM-R: 250,000 tokens, 32,000 vocabulary entries). A tokenizer.json cannot express that:
in a Unigram model of the `tokenizers` library, the id of a token is its position in the vocabulary, so tokens
that are not in dict.txt would get ids of their own, and without them the segmentation changes.
`BartphoTokenizer` of Transformers reads exactly these two files. It differs only in how it truncates long
texts; `tokenization_pieces.py`, which is copied into the folder, truncates as fairseq does. Data with a
Transformers tokenizer (CamemBERT, XLM-R, RoBERTa) keep it.

The model may be of any family in `families.FAMILIES`.

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
import transformers
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from roberta_small.common import families
from roberta_small.common.errors import UserError, enumerate_some
from roberta_small.common.families import FAMILIES, Family
from roberta_small.common.files import atomic_write, read_object
from roberta_small.common.label_kinds import SCALING, Labels
from roberta_small.eval.model import Model
from roberta_small.export.transformers.modeling_mean_pooling import (
    MeanPoolingConfig,
    MeanPoolingForSequenceClassification,
)
from roberta_small.export.transformers.networks import Source, entries_of, leftover, own_class
from roberta_small.export.transformers.tokenization_pieces import PieceTokenizer
from roberta_small.fairseq_plugin.checkpoints.loading import READ_ERRORS, refusal, verify_checksums
from roberta_small.preprocess import dictionary as fairseq_dictionary
from roberta_small.preprocess.dictionary import MASK
from roberta_small.preprocess.tokenization.encoder import load_model
from roberta_small.preprocess.tokenization.transformers_encoder import (
    TransformersEncoder,
    has_divided_names,
    text_only,
)

TOKENIZER_CONFIG = "tokenizer_config.json"
CODE = Path(__file__).with_name("tokenization_pieces.py")
MEAN_CODE = Path(__file__).with_name("modeling_mean_pooling.py")
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
WITH_LM_HEAD = ("ForMaskedLM", "ForPreTraining", "LMHeadModel")
"""Ends of the names of architectures whose weights may contain a masked-LM head."""
CLASSIFIER = "ForSequenceClassification"
POOLER = "pooler."
"""In the names of weights of an encoder that only its classifiers use."""
SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
REMEDY = "use a folder written by save_pretrained or roberta-small export transformers"
LOAD_ERRORS = (SafetensorError, pickle.UnpicklingError, ImportError, StrictDataclassError, *READ_ERRORS)


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
    known = tokenizer.get_vocab()
    for symbol, index in ({MASK: len(words)} | words.index).items():
        if known.get(symbol) != index:
            raise UserError(
                f"{dictionary}: '{symbol}' has id {index} in fairseq, but {known.get(symbol, 'none')} in "
                "Transformers; use a dictionary without duplicates and without white space in its symbols"
            )
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
    folder: str | os.PathLike[str], encoder: TransformersEncoder, dictionary: Path, text_format: TextFormat
) -> None:
    """Write a Transformers tokenizer into the existing `folder`.

    With `plain_text`, it reads the names of special tokens as text, as in training. For some models, this
    needs a tokenizer.json that only the general class loads as it is. The fairseq dictionary is copied beside
    it, for the way back.
    """
    folder, tokenizer = Path(folder), encoder.tokenizer
    tokenizer.model_max_length = text_format.longest
    encoder.save(folder)
    if text_format.plain_text:
        config = read_object(folder / TOKENIZER_CONFIG, "save the tokenizer again")
        config["split_special_tokens"] = True
        if has_divided_names(tokenizer):
            config["tokenizer_class"] = GENERAL_CLASS
            content = json.dumps(text_only(tokenizer), ensure_ascii=False)
            atomic_write(folder / "tokenizer.json", content + "\n")
        atomic_write(folder / TOKENIZER_CONFIG, json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    shutil.copyfile(dictionary, folder / "dict.txt")


@dataclass(frozen=True)
class Carried:
    """What only fairseq needs: the content of fairseq.json and fairseq_extra.safetensors."""

    head: str | None = None
    """Name of the classification head."""
    activation_dropout: float = 0.0
    task: dict[str, Any] = field(default_factory=dict)
    """`shorten_method` and `keep_eos` of a classifier."""
    weights: dict[str, Tensor] = field(default_factory=dict)
    """Weights without a counterpart in Transformers (see `networks.leftover`)."""


def write_carried(folder: Path, model: Model, source: Source) -> None:
    """Write fairseq.json and fairseq_extra.safetensors; `source` is the checkpoint of `model`."""
    task = {}
    if model.checkpoint.is_classifier:
        config = model.checkpoint.task_config()
        task = {"shorten_method": str(config.shorten_method), "keep_eos": config.keep_eos}
    dropout = float(source.arguments.activation_dropout)
    content = {"head": source.head, "activation_dropout": dropout, "task": task}
    atomic_write(folder / SETTINGS, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    extra = leftover(source.weights, source.family, head=source.head, lm_head=source.head is None)
    save_file({name: tensor.clone().contiguous() for name, tensor in extra.items()}, folder / EXTRA)
    # safetensors creates files that only their owner may read.
    for path in folder.glob("*.safetensors"):
        shutil.copymode(folder / SETTINGS, path)


def read_carried(folder: Path) -> Carried:
    """Read both files, or return defaults for missing ones; raises `UserError` if one is malformed."""
    content: dict[str, Any] = {}
    weights: dict[str, Tensor] = {}
    try:
        if (path := folder / SETTINGS).is_file():
            content = json.loads(path.read_text(encoding="utf-8"))
            content = {key: kind(content[key]) for key, kind in KEYS.items()}
        if (path := folder / EXTRA).is_file():
            weights = load_file(path)
    except (ValueError, KeyError, TypeError, SafetensorError, OSError):
        raise UserError(
            f"{path}: malformed; remove it, or write the folder again with roberta-small export transformers"
        ) from None
    return Carried(**content, weights=weights)


@dataclass(frozen=True)
class Loaded:
    """The model of a folder, in fp32 on the CPU and in evaluation mode."""

    model: PreTrainedModel
    """A masked language model, a classifier, or the encoder alone."""
    family: Family
    """With the names of the weights in this model (`networks.own_class`)."""
    labels: Labels | None = None
    """What the logits of a classifier mean."""
    unused: tuple[str, ...] = ()
    """Weights of the folder without a place in the model, such as a pooler."""
    notes: tuple[str, ...] = ()
    """What is not used although the folder has it, and why."""


def load_pretrained(folder: Path) -> Loaded:
    """Load the model of a folder of `save_pretrained`.

    Of a model with another head than for masked tokens or classes, only the encoder is loaded. Pickled
    weights (pytorch_model.bin) are read if there are no safetensors, without executing code.

    Raises `UserError` if the folder or one of its files is missing or malformed, if its model cannot be
    represented in fairseq (`families.refusal`), and if weights are missing, which would otherwise be random.
    """
    if not sys.stderr.isatty():  # Transformers draws its bar in pipes and files, too
        disable_progress_bar()
    family, kind, labels, config, notes = _architecture(folder)
    safetensors = any((folder / name).is_file() for name in SAFETENSORS)
    if not safetensors and not any((folder / name).is_file() for name in PICKLES):
        raise UserError(
            f"{folder}: no weights (model.safetensors or pytorch_model.bin); download or save the model again"
        )
    model, report = _read(folder, kind, config, safetensors=safetensors)
    if kind == family.classes[0]:
        complete = all(name.startswith(f"{model.base_model_prefix}.") for name in report["missing_keys"])
        outputs: Any = model.get_output_embeddings()
        inputs: Any = model.get_input_embeddings()
        untied = model.config.tie_word_embeddings is False and (
            outputs is None or not torch.equal(outputs.weight, inputs.weight)
        )
        if complete and untied:
            notes += ("the LM head is not used, because its matrix is not that of the token embeddings",)
        kind = family.classes[0 if complete and not untied else 2]
    if kind != type(model).__name__:
        model, report = _read(folder, kind, config, safetensors=safetensors)
    is_encoder = kind == family.classes[2]
    missing = sorted(report["missing_keys"])
    if absent := [name for name in missing if not (is_encoder and POOLER in name)]:
        raise UserError(f"{folder}: weights are missing: {enumerate_some(absent)}; download or save it again")
    for name, found, wanted in report["mismatched_keys"]:
        raise UserError(
            f"{folder}: {name} has the shape {list(found)} in the weights, but {list(wanted)} by "
            "config.json; download or save both again"
        )
    unused = set(report["unexpected_keys"])
    if is_encoder:
        unused |= {name for name in model.state_dict() if POOLER in name and name not in missing}
    return Loaded(model.eval(), family, labels, tuple(sorted(unused)), notes)


def _read(
    folder: Path, kind: str, config: PreTrainedConfig, *, safetensors: bool
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """A model of the class `kind` with the weights of a folder, and which of them are missing or unused."""
    wrapper = MeanPoolingForSequenceClassification
    model_class: Any = wrapper if kind == wrapper.__name__ else getattr(transformers, kind)
    try:
        if not safetensors:
            for path in sorted(folder.glob("pytorch_model*.bin")):
                with path.open("rb") as stream:
                    verify_checksums(stream)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return model_class.from_pretrained(
                folder,
                config=config,
                ignore_mismatched_sizes=True,  # which are reported
                local_files_only=True,
                use_safetensors=safetensors,
                weights_only=True,
                dtype=torch.float32,
                attn_implementation="sdpa" if model_class._supports_sdpa else "eager",
                output_loading_info=True,
            )
    except pickle.UnpicklingError as error:
        raise UserError(f"{folder}: pytorch_model.bin {refusal(error)}") from None
    except LOAD_ERRORS as error:
        reason = " ".join(str(error).split())[:160]
        raise UserError(
            f"{folder}: the model cannot be loaded ({reason}); download or save it again"
        ) from None


def _architecture(folder: Path) -> tuple[Family, str, Labels | None, PreTrainedConfig, tuple[str, ...]]:
    """Of a folder's model: family, class to load it as, labels, configuration, and what is not used."""
    path = folder / "config.json"
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; {REMEDY}")
    if not path.is_file():
        raise UserError(f"{path}: no such file; {REMEDY}")
    config = families.read_config(path)
    if (reason := families.refusal(config)) is not None:
        raise UserError(f"{path}: {reason}")
    encoder = families.wrapped(config)
    family = FAMILIES[encoder["model_type"]]
    name = str((config.get("architectures") or [None])[0])
    kind, labels = family.classes[2], None
    notes: tuple[str, ...] = ()
    if encoder is not config or name.endswith(CLASSIFIER):
        kind = family.classes[1] if encoder is config else MeanPoolingForSequenceClassification.__name__
        if (labels := families.labels_of(config, path)) is None:
            kind = family.classes[2]
            notes = ("its head is not used, because it is for several numbers of a text",)
    elif name.endswith(WITH_LM_HEAD) and family.lm_head is not None:
        kind = family.classes[0]
    # What is left out only changes how Transformers runs a model (`return_dict`), or is unknown to it.
    kind_of_config = getattr(transformers, f"{family.prefix}Config")
    read = {*families.COMMON, *family.settings.values(), *family.copies, *family.required}
    names: dict[str, str] = kind_of_config.attribute_map
    kept = {key: value for key, value in encoder.items() if names.get(key, key) in read}
    others = [key for key, value in encoder.items() if value and key not in (*kept, SCALING)]
    if unknown := [key for key in others if key[:1] != "_" and not hasattr(kind_of_config, key)]:
        notes += (f"config.json: not used: {enumerate_some(unknown)}",)
    head: dict[str, Any] = {}
    if labels is not None:
        head = entries_of(labels) | {"problem_type": labels.kind.name}
    try:
        found = kind_of_config(**kept, **head)
    except LOAD_ERRORS as error:
        raise UserError(f"{path}: {' '.join(str(error).split())[:160]}; correct it") from None
    if (reason := families.refusal(found.to_dict())) is not None:  # of other names and default values
        raise UserError(f"{path}: {reason}")
    if encoder is not config:
        known = {"pooling": ("mean", "first"), "pooler_activation": ("tanh", "relu", "gelu", "linear")}
        for key, values in known.items():
            if (given := config.get(key, values[0])) not in values:
                raise UserError(f"{path}: {key} is {given!r}; use one of {', '.join(values)}")
        own = ("pooling", "pooler_activation", "pooler_dropout")
        of_head = head | {key: config[key] for key in own if key in config}
        family, found = own_class(family), MeanPoolingConfig(encoder=found.to_dict(), **of_head)
    return family, kind, labels, found, notes
