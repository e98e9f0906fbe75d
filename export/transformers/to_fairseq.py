"""`python -m export fairseq`: a from_pretrained folder to a fairseq checkpoint with its dict.txt."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf
from torch import Tensor
from transformers import RobertaConfig, RobertaForSequenceClassification

from common.data_folder import dictionary_digest
from common.errors import UserError
from common.files import atomic_open, atomic_write
from eval.loading.training_files import OptionalPath
from fairseq_plugin.tasks.sentence_classification import SentenceClassificationTask, load_dictionary

from .folder import Carried, Model, class_names, load_folder, read_carried
from .origin import MASK
from .roberta import (
    ACTIVATIONS,
    BOS,
    EOS,
    LAYER_NORM_EPS,
    PAD,
    TIED,
    TOKENS,
    Source,
    model_of,
    to_fairseq,
)
from .verify import TOLERANCE, largest_difference

HEAD = "sentence_classification_head"
UNUSED = ("encoder.lm_head.", "encoder.sentence_encoder.version")
"""Weights of a fairseq classifier that do not influence its predictions; they may be random."""
# Settings that fairseq's RoBERTa has no flag for: entry of the configuration -> required value.
FIXED = {
    "layer_norm_eps": LAYER_NORM_EPS,
    "bos_token_id": BOS,
    "pad_token_id": PAD,
    "eos_token_id": EOS,
    "tie_word_embeddings": True,
    "is_decoder": False,
}
ROWS = 24
"""Number of inputs with random ids on which both networks are compared."""


@dataclass(frozen=True)
class LogitVerification:
    """Result of the comparison of the checkpoint with the folder."""

    difference: float
    new: list[str]
    """Random weights: required by fairseq, missing in the folder, without influence on predictions."""

    def __str__(self) -> str:
        """One line, and a second one if there are random weights."""
        text = f"logits: {ROWS} rows of random ids, largest difference {self.difference:.1e}"
        if self.new:
            text += f"\nrandom, because missing in the folder (unused by a classifier): {', '.join(self.new)}"
        return text


def convert_back(folder: Path, output: Path, *, dictionary: OptionalPath = None) -> LogitVerification:
    """Write a folder of `save_pretrained` as the checkpoint `output`, with dict.txt beside it.

    `dictionary` defaults to dict.txt of the folder. Raises `UserError` if a file is missing, malformed or
    does not match the model, if fairseq does not support the model, if `output` exists, and if there is
    another dict.txt beside it.
    """
    if output.exists():
        raise UserError(f"{output}: exists; choose another name, or move it away")
    model = load_folder(folder)
    carried = read_carried(folder)
    words, content = _dictionary(Path(dictionary or folder / "dict.txt"), model.config)
    beside = output.parent / "dict.txt"
    if beside.is_file() and beside.read_bytes() != content:
        raise UserError(f"{beside}: not the dictionary of the model; write to another folder")
    _check_supported(folder, model.config)

    classes = class_names(model) if isinstance(model, RobertaForSequenceClassification) else None
    cfg = _configuration(model.config, carried, classes)
    head = None if classes is None else (carried.head or HEAD)
    source, new = _source(output, cfg, model, head, carried.weights)
    difference = largest_difference(source, model, _random_rows(model.config))
    if not difference <= TOLERANCE:
        raise UserError(f"{folder}: fairseq's network differs by {difference:.1e}; nothing was written")
    atomic_write(beside, content)
    with atomic_open(output, "wb") as stream:
        torch.save(_state(cfg, source, words, classes), stream)
    return LogitVerification(difference, new)


def _dictionary(path: Path, config: RobertaConfig) -> tuple[Dictionary, bytes]:
    if not path.is_file():
        raise UserError(f"{path}: no such file; give the fairseq dictionary of the model with --dict")
    words = load_dictionary(path)
    words.add_symbol(MASK)
    if len(words) != config.vocab_size:
        raise UserError(
            f"{path}: {len(words):,} entries with <mask>, but the model has {config.vocab_size:,}; give its "
            "own dictionary with --dict"
        )
    return words, path.read_bytes()


def _check_supported(folder: Path, config: RobertaConfig) -> None:
    for name, value in FIXED.items():
        if getattr(config, name) != value:
            raise UserError(
                f"{folder}: {name} is {getattr(config, name)}, but fairseq's RoBERTa supports only {value}; "
                "the model cannot be converted"
            )
    if config.hidden_act not in ACTIVATIONS.values():
        raise UserError(
            f"{folder}: hidden_act is {config.hidden_act}, which fairseq does not support; "
            "the model cannot be converted"
        )


def _configuration(config: RobertaConfig, carried: Carried, classes: list[str] | None) -> dict[str, Any]:
    """The configuration that fairseq-train would write for these sizes."""
    activation = next(name for name, theirs in ACTIVATIONS.items() if theirs == config.hidden_act)
    longest = config.max_position_embeddings - (PAD + 1)
    pooler = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
    flags = {
        "arch": "roberta_small",
        "encoder-layers": config.num_hidden_layers,
        "encoder-embed-dim": config.hidden_size,
        "encoder-ffn-embed-dim": config.intermediate_size,
        "encoder-attention-heads": config.num_attention_heads,
        "max-positions": longest,
        "dropout": config.hidden_dropout_prob,
        "attention-dropout": config.attention_probs_dropout_prob,
        "activation-dropout": carried.activation_dropout,
        "pooler-dropout": pooler,
        "activation-fn": activation,
        "precision": "fp32",
    }
    switches = []
    if classes is None:
        flags |= {"task": "masked_lm", "criterion": "masked_lm", "tokens-per-sample": longest}
    else:
        flags |= {
            "task": "sentence_classification",
            "criterion": "sentence_classification",
            "classification-head-name": carried.head or HEAD,
            "num-classes": len(classes),
            "init-token": BOS,
            "separator-token": EOS,
            "shorten-method": carried.task.get("shorten_method", "truncate"),
        }
        switches += ["--keep-eos"] if carried.task.get("keep_eos", True) else []
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    parser = options.get_training_parser()
    # The empty word stands for the data folder, which is unknown.
    parsed = options.parse_args_and_arch(parser, ["", *words, *switches])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fairseq's use of hydra is deprecated
        cfg = convert_namespace_to_omegaconf(parsed)
    return OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)


def _source(
    path: Path, cfg: dict[str, Any], model: Model, head: str | None, extra: dict[str, Tensor]
) -> tuple[Source, list[str]]:
    """The checkpoint in memory, and the names of its random LM head weights."""
    known = to_fairseq(model.state_dict(), head=head)
    wanted = model_of(cfg["model"], model.config.vocab_size, head, model.config.num_labels).state_dict()
    known[TIED] = known[TOKENS]
    fitting = {key: extra[key] for key in wanted if key in extra and extra[key].shape == wanted[key].shape}
    weights = wanted | fitting | known
    new = [key for key in wanted if key not in known and key not in fitting]
    wrong = [key for key in new if not key.startswith(UNUSED)] + sorted(set(weights) - set(wanted))
    if wrong:
        raise RuntimeError(f"{path}: fairseq's RoBERTa and Transformers' differ in {', '.join(wrong)}")
    weights = {key: tensor.clone().contiguous() for key, tensor in weights.items()}
    return Source(path, cfg["model"], weights, head), [key for key in new if "lm_head" in key]


def _random_rows(config: RobertaConfig) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    longest = config.max_position_embeddings - (PAD + 1)
    lengths = [longest, *rng.integers(2, longest + 1, ROWS - 1)]
    return [np.concatenate([[BOS], rng.integers(EOS + 1, config.vocab_size, size - 1)]) for size in lengths]


def _state(
    cfg: dict[str, Any], source: Source, words: Dictionary, classes: list[str] | None
) -> dict[str, Any]:
    task_state = {}
    if classes is not None:
        task_state[SentenceClassificationTask.__name__] = {
            "dictionary_sha256": dictionary_digest(words.symbols),
            "class_names": classes,
        }
    # fairseq's trainer reads the last entry of the history.
    history = {"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}
    return {
        "args": None,
        "cfg": cfg,
        "model": source.weights,
        "optimizer_history": [history],
        "extra_state": task_state,
    }
