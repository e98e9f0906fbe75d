"""`roberta-small export fairseq`: a from_pretrained folder to a fairseq checkpoint, dictionary and tokenizer.

The folder contains an encoder of one of the families in `families.FAMILIES`: a masked language model, a
classifier, or the encoder alone or with another head, which is not used. At most two copies of the weights
are in memory: Transformers' model and fairseq's.

V vocabulary entries, C embedding width, T token types.
"""

from __future__ import annotations

import io
import json
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models.roberta.model import RobertaModel
from numpy.typing import NDArray
from omegaconf import OmegaConf
from torch import Tensor
from transformers import PreTrainedConfig

from roberta_small.common.data_folder import dictionary_digest
from roberta_small.common.errors import UserError, enumerate_some
from roberta_small.common.families import ACTIVATIONS, POOLING, TIED, TOKENS
from roberta_small.common.files import atomic_folder, atomic_open, atomic_write, read_object
from roberta_small.common.label_kinds import SCALING
from roberta_small.common.run import read_thresholds, write_thresholds
from roberta_small.eval.origin import OptionalPath
from roberta_small.export.transformers.folder import (
    TOKENIZER_CONFIG,
    Carried,
    Loaded,
    load_pretrained,
    read_carried,
)
from roberta_small.export.transformers.modeling_mean_pooling import MeanPoolingForSequenceClassification
from roberta_small.export.transformers.networks import (
    Special,
    encoder_config,
    longest_input,
    model_of,
    to_fairseq,
)
from roberta_small.export.transformers.tokenization_pieces import PieceTokenizer
from roberta_small.export.transformers.verify import TOLERANCE, Counterpart, largest_difference, random_rows
from roberta_small.fairseq_plugin.checkpoints.loading import LM_HEAD, bare_state
from roberta_small.fairseq_plugin.tasks.sentence_classification import (
    SentenceClassificationTask,
    load_dictionary,
)
from roberta_small.preprocess.dictionary import BOS, EOS, MASK, NO_SEPARATOR
from roberta_small.preprocess.tokenization.choice import FOLDER as TOKENIZER
from roberta_small.preprocess.tokenization.choice import MODEL as SENTENCEPIECE
from roberta_small.preprocess.tokenization.choice import beside
from roberta_small.preprocess.tokenization.transformers_encoder import TransformersEncoder

HEAD = "sentence_classification_head"
MODULES = "modules.json"
"""The layers of a sentence encoder (sentence-transformers)."""
UNUSED = (LM_HEAD, "encoder.sentence_encoder.version")
"""Weights of a fairseq classifier that do not influence its predictions; they may be random."""
ROWS = 24
"""Number of inputs with random ids on which both networks are compared."""
SEED = 1
"""Of the weights that the folder lacks, so that the same folder always gives the same checkpoint."""
LARGE = 50_000_000
"""Parameters from which on the conversion takes long enough to be announced."""


@dataclass(frozen=True)
class LogitVerification:
    """Result of the comparison of the checkpoint with the folder."""

    difference: float
    random: tuple[str, ...] = ()
    """Weights of the LM head that fairseq requires and the folder lacks."""
    unused: tuple[str, ...] = ()
    """Weights of the folder that fairseq has no place for."""
    notes: tuple[str, ...] = ()
    """What else the user should know."""

    def __str__(self) -> str:
        """One line, and one more for each note, and for random and unused weights."""
        lines = [f"logits: {ROWS} rows of random ids, largest difference {self.difference:.1e}", *self.notes]
        if self.random:
            lines.append(f"random, because missing in the folder: {enumerate_some(self.random)}")
        if self.unused:
            lines.append(f"unused, because fairseq has no such weights: {enumerate_some(self.unused)}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Vocabulary:
    """Dictionary and tokenizer of a folder."""

    dictionary: Dictionary
    """With `<mask>`."""
    files: dict[str, bytes]
    """Name -> content of the files beside a checkpoint: dict.txt, and those of a SentencePiece model."""
    encoder: TransformersEncoder | None = None
    """The folder's tokenizer, if it is one of Transformers."""

    @property
    def order(self) -> NDArray[np.int64] | None:
        """The model's id of each id of the dictionary; None if they are equal."""
        return None if self.encoder is None else self.encoder.order


def convert_back(folder: Path, output: Path, *, dictionary: OptionalPath = None) -> LogitVerification:
    """Write a folder of `save_pretrained` as the checkpoint `output`, dictionary and tokenizer beside it.

    dict.txt is `dictionary`, else that of the folder, else it is made from the folder's tokenizer, with the
    same ids. A Transformers tokenizer is written to tokenizer/, a SentencePiece model beside dict.txt. Long
    conversions are announced on standard error.

    Raises `UserError` if a file is missing, malformed or does not match the model, if fairseq does not
    support the model, if `output` exists, and if there is another dictionary or tokenizer beside it.
    """
    if output.exists():
        raise UserError(f"{output}: already exists; choose another name or delete it")
    loaded = load_pretrained(folder)
    model, labels, config = loaded.model, loaded.labels, encoder_config(loaded.model)
    carried = read_carried(folder)
    vocabulary = _vocabulary(folder, dictionary, config)
    _check_beside(output.parent, vocabulary)
    encoder = vocabulary.encoder
    begin, end = config.bos_token_id, config.eos_token_id
    begin, end = BOS if begin is None else begin, end if isinstance(end, int) else EOS
    token_types = False
    if encoder is not None:
        begin, end = encoder.init_token, encoder.separator_token if encoder.separates_pairs else NO_SEPARATOR
        token_types = encoder.has_token_types and loaded.family.distinguishes_texts
        token_types = token_types and config.type_vocab_size > 1
    other = Counterpart(model, loaded.family, vocabulary.order, token_types)
    pooling, notes = _pooling(folder) if labels is None else ("first", ())
    if any(name.endswith(".Dense") for name in _modules(folder)):  # as LaBSE
        notes += (f"{MODULES}: the dense layer after pooling is not used",)
    cfg = _configuration(loaded, carried, (begin, end), pooling, token_types)
    parameters = sum(weight.numel() for weight in model.parameters())
    if parameters >= LARGE:
        print(f"{folder}: converting {parameters / 1e6:,.0f} million parameters", file=sys.stderr, flush=True)
    head = None if labels is None else (carried.head or HEAD)
    network, new = _network(folder, cfg, other, len(vocabulary.dictionary), head, carried.weights)
    tokens = len(vocabulary.dictionary) if other.order is None else len(other.order)
    rows = random_rows(ROWS, longest_input(config), tokens, begin, pairs=token_types)
    scores = type(model).__name__ == loaded.family.classes[0]
    difference = largest_difference(network, head, other, rows, scores=scores)
    if not difference <= TOLERANCE:
        raise UserError(
            f"{folder}: the logits of the fairseq model differ by up to {difference:.1e}; nothing was written"
        )
    for name, content in vocabulary.files.items():
        atomic_write(output.parent / name, content)
    if encoder is not None:
        with atomic_folder(output.parent / TOKENIZER) as place:
            encoder.save(place)
    task_state: dict[str, Any] | None = None
    if labels is not None:
        digest = dictionary_digest(vocabulary.dictionary.symbols)
        recorded: dict[str, Any] = {"dictionary_sha256": digest, "class_names": list(labels.classes)}
        if not labels.kind.has_classes:
            recorded[SCALING] = labels.scaling.record()
        task_state = {SentenceClassificationTask.__name__: recorded}
    if thresholds := read_thresholds(folder):
        write_thresholds(output.parent, thresholds)
    with atomic_open(output, "wb") as stream:
        torch.save(bare_state(dict(network.state_dict()), cfg, task_state), stream)
    return LogitVerification(difference, new, loaded.unused, (*loaded.notes, *notes))


def _pooling(folder: Path) -> tuple[str, tuple[str, ...]]:
    """The value of --pooling for a sentence encoder, and a note if it has another way to pool."""
    path = folder / POOLING
    if not path.is_file():
        return "first", ()
    content = read_object(path, "download the model again")
    modes = [name for name, used in content.items() if name.startswith("pooling_mode") and used is True]
    mode = str(content.get("pooling_mode")) if len(modes) != 1 else modes[0]
    if mode in ("pooling_mode_mean_tokens", "mean"):
        return "mean", ()
    if mode in ("pooling_mode_cls_token", "cls"):
        return "first", (
            f"{POOLING}: the sentence vector is that of the first token; if the recipe sets the mean, "
            "-- --pooling first keeps it",
        )
    return "first", (f"{POOLING}: not by the mean or the first token, so --pooling first is used",)


def _modules(folder: Path) -> list[str]:
    """The types of the layers of a sentence encoder."""
    path = folder / MODULES
    try:
        modules = json.loads(path.read_bytes()) if path.is_file() else []
        return [str(module["type"]) for module in modules]
    except (ValueError, TypeError, KeyError):
        raise UserError(f"{path}: malformed; download the model again") from None


def _vocabulary(folder: Path, given: OptionalPath, config: PreTrainedConfig) -> Vocabulary:
    """Dictionary and tokenizer of a folder; raises `UserError` if they do not fit the model or each other."""
    path = Path(given) if given is not None else folder / "dict.txt"
    found = beside(folder)
    encoder = found.transformers_encoder() if found is not None and found.model is None else None
    if given is None and not path.is_file() and encoder is not None:
        path, content = folder, encoder.dictionary.text().encode()
        words = Dictionary.load(io.StringIO(content.decode()))
    elif path.is_file():
        words, content = load_dictionary(path), path.read_bytes()
    else:
        raise UserError(
            f"{path}: no such file, and the folder has no tokenizer; pass the fairseq dictionary of the "
            "model with --dict, or add the files of the tokenizer"
        )
    words.add_symbol(MASK)
    tokens = len(words) if encoder is None else len(encoder.order)
    # A tokenizer may lack the last rows of a model, which are then padding.
    if tokens > config.vocab_size or (encoder is None and tokens < config.vocab_size):
        raise UserError(
            f"{path}: {tokens:,} entries with {MASK}, but the model has {config.vocab_size:,}; pass its "
            "own dictionary with --dict, or its own tokenizer"
        )
    if encoder is not None and encoder.dictionary.with_mask().symbols != words.symbols:
        raise UserError(
            f"{path}: not the vocabulary of the tokenizer in {folder}; remove the file of the two that does "
            "not belong to the model"
        )
    files = {"dict.txt": content}
    if encoder is not None:
        return Vocabulary(words, files, encoder)
    if (model := folder / SENTENCEPIECE).is_file():
        files[SENTENCEPIECE] = model.read_bytes()
    if found is not None and found.normalize_apostrophes:
        kept = {"tokenizer_class": PieceTokenizer.__name__, "normalize_apostrophes": True}
        files[TOKENIZER_CONFIG] = (json.dumps(kept, indent=2) + "\n").encode()
    return Vocabulary(words, files)


def _check_beside(folder: Path, vocabulary: Vocabulary) -> None:
    """Raise `UserError` if the target folder has another dictionary or tokenizer."""
    for name, content in vocabulary.files.items():
        path = folder / name
        if path.is_file() and path.read_bytes() != content:
            raise UserError(f"{path}: not that of the model; write to another folder")
    path, encoder = folder / TOKENIZER, vocabulary.encoder
    if encoder is None or not path.exists():
        return
    if TransformersEncoder(str(path)).dictionary.symbols != encoder.dictionary.symbols:
        raise UserError(f"{path}: not the tokenizer of the model; write to another folder")


def _configuration(
    loaded: Loaded, carried: Carried, special: Special, pooling: str, token_types: bool
) -> dict[str, Any]:
    """The configuration that fairseq-train would write for this model."""
    model, family, labels = loaded.model, loaded.family, loaded.labels
    config, longest = encoder_config(model), longest_input(encoder_config(model))
    values = {name: getattr(config, entry) for name, entry in family.settings.items()}
    if values["pooler_dropout"] is None:
        values["pooler_dropout"] = values["dropout"]
    values |= {
        # Not every configuration has the width of the feed-forward network.
        "encoder_ffn_embed_dim": len(
            model.base_model.get_parameter(f"{family.layer['fc1'].format(0)}.weight")
        ),
        "activation_fn": ACTIVATIONS[str(values.get("activation_fn", "gelu"))],
        "layer_norm_eps": values.get("layer_norm_eps", family.layer_norm_eps),
        "max_positions": longest,
        "activation_dropout": carried.activation_dropout,
        "pooler_activation_fn": family.pooler_activation,
        "pooling": pooling,
        "family": family.name,
        "arch": "roberta_small",
        "precision": "fp32",
    }
    if isinstance(model, MeanPoolingForSequenceClassification):
        values |= {"pooling": model.config.pooling, "pooler_activation_fn": model.config.pooler_activation}
        values["pooler_dropout"] = model.config.pooler_dropout
    switches = ["--token-types"] if token_types else []
    if labels is None:
        values |= {"task": "masked_lm", "criterion": "masked_lm", "tokens_per_sample": longest}
    else:
        values |= {
            "task": "sentence_classification",
            "criterion": "sentence_classification",
            "classification_head_name": carried.head or HEAD,
            "num_classes": labels.size,
            "init_token": special[0],
            "separator_token": special[1],
            "shorten_method": carried.task.get("shorten_method", "truncate"),
        }
        switches += labels.kind.flags
        switches += ["--keep-eos"] if carried.task.get("keep_eos", True) else []
    words = [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    parser = options.get_training_parser()
    # The empty word stands for the data folder, which is unknown.
    parsed = options.parse_args_and_arch(parser, ["", *words, *switches])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fairseq's use of hydra is deprecated
        cfg = convert_namespace_to_omegaconf(parsed)
    content = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    assert isinstance(content, dict)
    return {str(key): value for key, value in content.items()}


def _network(
    folder: Path,
    cfg: dict[str, Any],
    other: Counterpart,
    vocabulary: int,
    head: str | None,
    extra: dict[str, Tensor],
) -> tuple[RobertaModel, tuple[str, ...]]:
    """fairseq's model with the weights of `other`, and the names of its random LM head weights."""
    model, family = other.model, other.family
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        network = model_of(cfg["model"], vocabulary, head, model.config.num_labels)
    weights, types = model.state_dict(), other.token_types
    if type(model).__name__ == family.classes[2]:
        weights = {f"{family.base}.{name}": weight for name, weight in weights.items()}
    known = to_fairseq(
        weights, family, head=head, order=other.order, vocabulary=vocabulary, token_types=types
    )
    known[TIED] = known[TOKENS]
    wanted = network.state_dict()
    known |= {
        key: weight
        for key, weight in extra.items()
        if key in wanted and key not in known and weight.shape == wanted[key].shape
    }
    missing, unexpected = network.load_state_dict(known, strict=False)
    if wrong := [key for key in missing if not key.startswith(UNUSED)] + sorted(unexpected):
        raise RuntimeError(f"{folder}: fairseq's RoBERTa and Transformers' differ in {', '.join(wrong)}")
    return network.eval(), tuple(key for key in missing if key.startswith(LM_HEAD))
