"""The network of a checkpoint: reading the file, building the model, and computing logits from token ids.

Supported are RoBERTa trained with this project's tasks or with fairseq's, and this project's left-to-right
and n-gram models.

Shapes: N examples, K classes; B sentences in a batch, L tokens in the longest, C embedding size.
"""

from __future__ import annotations

import roberta_small.fairseq_plugin  # noqa: F401  first: it imports fairseq in less time

# isort: split
import argparse
import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.models.roberta.model import RobertaModel
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import init
from torch.overrides import TorchFunctionMode

from roberta_small.common.cli import DEVICES
from roberta_small.common.data_folder import WRITE_AGAIN
from roberta_small.common.errors import UserError
from roberta_small.common.families import FIRST_POSITION
from roberta_small.common.hardware import sizes_of
from roberta_small.common.label_kinds import LabelKind, Scaling
from roberta_small.eval.precision import BF16, FP32, INT8
from roberta_small.eval.texts import Examples, Ids, limit_kernels, logits_of
from roberta_small.fairseq_plugin.checkpoints.architecture import (
    arch_name,
    kind_of_settings,
    model_arguments,
    scaling_of_state,
)
from roberta_small.fairseq_plugin.checkpoints.loading import LM_HEAD, load_checkpoint, task_settings
from roberta_small.fairseq_plugin.models import int8
from roberta_small.fairseq_plugin.models.causal import CausalRobertaSmall
from roberta_small.fairseq_plugin.models.ngrams import NgramClassifier
from roberta_small.fairseq_plugin.models.roberta import CLASSIFICATION_HEADS as HEADS
from roberta_small.fairseq_plugin.models.roberta import RobertaSmall
from roberta_small.fairseq_plugin.tasks.datasets import load_numbers
from roberta_small.fairseq_plugin.tasks.sentence_classification import (
    SentenceClassificationConfig,
    SentenceClassificationTask,
    class_names,
    kind_and_scaling,
    load_dictionary,
)
from roberta_small.fairseq_plugin.training.curves import PRECISION_KEY
from roberta_small.fairseq_plugin.training.threads import LoadFollower
from roberta_small.preprocess.dictionary import MASK

TASKS = ("sentence_classification", "sentence_prediction")
"""The tasks of classifiers."""
TOKENS = ".embed_tokens.weight"
"""End of the name of the token embeddings."""
POSITIONS = ".embed_positions.weight"
UNLIMITED = 1 << 30
DIFFERENCES_SHOWN = 3
FILLERS = {Tensor.normal_, Tensor.uniform_, init.normal_, init.uniform_, init.kaiming_uniform_}
"""What torch and fairseq initialize weights with; most of the time of building a model."""


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint; it may be a classifier or a language model."""

    path: Path
    arguments: argparse.Namespace
    """The arguments from which fairseq builds the model."""
    settings: dict[str, Any]
    """The configuration of the task."""
    weights: dict[str, Tensor]
    dictionary_sha256: str | None = None
    """SHA-256 of the symbols including `<mask>` (`dictionary_digest`); None for stock fairseq."""
    class_names: list[str] | None = None
    """In the order of the logits; None for stock fairseq."""
    precision: str | None = None
    """`fp32` or `bf16`, of training; None if it is not recorded."""
    scaling: Scaling = Scaling()
    """Of the labels of a regression; stock fairseq does not scale them."""

    def arguments_with(self, **changes: Any) -> argparse.Namespace:
        """The arguments of the model with changes."""
        return argparse.Namespace(**vars(self.arguments) | changes)

    @property
    def is_classifier(self) -> bool:
        """Whether there is a classification head; otherwise it is a language model."""
        return any(name.startswith(HEADS) for name in self.weights)

    def model_class(self) -> type[RobertaSmall] | type[NgramClassifier]:
        """The class of the model, for stock RoBERTa the plugin's; `UserError` for another architecture."""
        name = arch_name(self.arguments)
        if (found := _supported(name)) is None:
            known = ", ".join(sorted(filter(_supported, ARCH_MODEL_REGISTRY)))
            what = "its configuration has no" if name is None else f"'{name}' is an unsupported"
            raise UserError(
                f"{self.path}: {what} architecture (supported: {known}); specify a checkpoint of a sentence "
                "classifier"
            )
        return found

    def language_model_class(self) -> type[CausalRobertaSmall]:
        """The class of the model; raises `UserError` unless it is a left-to-right language model."""
        name = arch_name(self.arguments)
        found = _supported(name)
        if found is None or not issubclass(found, CausalRobertaSmall):
            raise UserError(
                f"{self.path}: cannot generate text: the architecture '{name}' is not a left-to-right "
                "language model"
            )
        if not any(key.startswith(LM_HEAD) for key in self.weights):
            what = "a classifier" if self.is_classifier else "an encoder"
            raise UserError(
                f"{self.path}: {what} without language-model head; use a checkpoint of a left-to-right "
                "language model"
            )
        return found

    @property
    def is_causal(self) -> bool:
        """Whether the architecture is a left-to-right model."""
        return issubclass(_supported(arch_name(self.arguments)) or object, CausalRobertaSmall)

    def check_classifier(self) -> None:
        """Raise `UserError` unless the checkpoint is a classifier."""
        self.model_class()
        if head_weight(self.settings["classification_head_name"]) not in self.weights:
            raise UserError(
                f"{self.path}: no classification head (a pretrained model?); fine-tune it first: "
                f"roberta-small train --data DATA --pretrained {self.path}"
            )
        task = self.settings.get("_name") or self.settings.get("task")
        if task not in TASKS:
            found = "its configuration has no task" if task is None else f"trained for the task '{task}'"
            raise UserError(f"{self.path}: {found}; specify a classifier, trained for {' or '.join(TASKS)}")

    @property
    def head(self) -> str:
        """Name of the classification head; raises `UserError` unless the checkpoint is a classifier."""
        self.check_classifier()
        return self.settings["classification_head_name"]

    @property
    def kind(self) -> LabelKind:
        """The kind of the labels."""
        return kind_of_settings(self.settings)

    @property
    def classes(self) -> int:
        """The number of logits; raises `UserError` unless the checkpoint is a classifier."""
        return len(self.weights[head_weight(self.head)])

    @property
    def vocabulary(self) -> int | None:
        """The number of token embeddings; None without any."""
        return next((len(weight) for name, weight in self.weights.items() if name.endswith(TOKENS)), None)

    @property
    def positions(self) -> int:
        """Longest input in tokens, from the table of positions; a large number for sinusoids."""
        table = next((w for name, w in self.weights.items() if name.endswith(POSITIONS)), None)
        return UNLIMITED if table is None else len(table) - FIRST_POSITION

    def task_config(self, data: str = "") -> SentenceClassificationConfig:
        """The configuration of a classifier's task as in training, for the folder `data`; no shuffling."""
        known = {field.name for field in dataclasses.fields(SentenceClassificationConfig)}
        values = {key: value for key, value in self.settings.items() if key in known and value is not None}
        values |= {"data": data, "num_classes": self.classes, "no_shuffle": True}
        return SentenceClassificationConfig(**values)


def _supported(arch: str | None) -> type[RobertaSmall] | type[NgramClassifier] | None:
    """The class that builds an architecture; None if it is not supported."""
    model = ARCH_MODEL_REGISTRY.get(arch)
    if getattr(model, "__wrapped__", model) is RobertaModel:  # models/roberta.py wraps it
        return RobertaSmall
    return model if model is not None and issubclass(model, (RobertaSmall, NgramClassifier)) else None


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; raises `UserError` if the file is not a checkpoint (see `load_checkpoint`)."""
    state = load_checkpoint(path, optimizer=False)
    arguments = model_arguments(state)
    settings = task_settings(state)
    settings.setdefault("classification_head_name", "sentence_classification_head")
    settings["seed"] = settings["seed"] if isinstance(settings.get("seed"), int) else 1
    extra = state.get("extra_state") or {}
    recorded = extra.get(SentenceClassificationTask.__name__) or {}
    # If training chose the precision, it is recorded by device type, the latest device last.
    chosen = extra.get(PRECISION_KEY)
    precisions = [*(chosen.values() if isinstance(chosen, dict) else [])][-1:]
    if getattr(arguments, "precision", None) in (FP32, BF16):
        precisions = [arguments.precision]
    return Checkpoint(
        path=path,
        arguments=arguments,
        settings=settings,
        weights=state["model"],
        dictionary_sha256=recorded.get("dictionary_sha256"),
        class_names=recorded.get("class_names"),
        precision=next((value for value in precisions if value in (FP32, BF16)), None),
        scaling=scaling_of_state(state, path),
    )


def head_weight(head: str) -> str:
    """Name of the weight (K, C) with one row per class."""
    return f"{HEADS}{head}.out_proj.weight"


class Network:
    """A classifier in evaluation mode on its device.

    Attributes:
        model: a model of the plugin, of the checkpoint's architecture.
        head: name of the classification head.
        device: the device of the model.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        device: str = "auto",
        precision: str = FP32,
        max_tokens: int | None = None,
    ) -> None:
        """Build the model and load the weights; `precision` is `fp32`, `bf16` or `int8`.

        Raises `UserError` if the checkpoint is not a classifier, its weights do not match its configuration,
        or the device is not available.
        """
        self.head = checkpoint.head
        self.device = find_device(device)
        self.max_tokens = max_tokens or sizes_of(self.device.type).prediction_tokens
        self.classes = checkpoint.classes
        self.model = build_classifier(checkpoint, self.device, precision)
        self._load = LoadFollower() if self.device.type == "cpu" else None

    def logits(self, rows: Sequence[Ids], *, progress: str | None = None) -> NDArray[np.float32]:
        """The logits (N, K) of rows of ids, in their order; `progress` is the title of a progress bar."""
        return logits_of(rows, self._compute, self.classes, max_tokens=self.max_tokens, progress=progress)

    @torch.inference_mode()
    def _compute(self, tokens_BL: NDArray[np.int64]) -> NDArray[np.float32]:
        if self._load is not None:
            self._load.update()
        with contextlib.suppress(torch.OutOfMemoryError):
            logits_BK, _ = self.model(
                torch.from_numpy(tokens_BL).to(self.device),
                features_only=True,
                classification_head_name=self.head,
            )
            return logits_BK.float().cpu().numpy()
        # Of a GPU; here, nothing refers to the tensors of the failed pass any more.
        if len(tokens_BL) == 1:
            raise UserError("out of GPU memory for one text; use --device cpu")
        torch.cuda.empty_cache()
        return np.concatenate([self._compute(half) for half in np.array_split(tokens_BL, 2)])

    def head_input(self, tokens_BL: Tensor, embeddings_BLC: Tensor) -> Tensor:
        """The input of the classification head, (B, 1, C), computed from token embeddings."""
        encoder = self.model.encoder.sentence_encoder
        if hasattr(encoder, "pooled"):
            return encoder.pooled(tokens_BL, self.model.args.pooling, embeddings_BLC).unsqueeze(1)
        return encoder(tokens_BL, token_embeddings=embeddings_BLC)["encoder_out"][0][:1].transpose(0, 1)


def find_device(name: str) -> torch.device:
    """`auto` is the GPU if there is one; raises `UserError` if the requested device is not available."""
    if name not in DEVICES:
        raise UserError(f"device '{name}': choose one of {', '.join(DEVICES)}")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: PyTorch does not detect a GPU; check nvidia-smi or use --device cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def build_classifier(
    checkpoint: Checkpoint, device: torch.device, precision: str
) -> RobertaSmall | NgramClassifier:
    """The model of a classifier in evaluation mode; `UserError` if configuration and weights differ."""
    head, config = checkpoint.head, checkpoint.task_config()
    known: dict[str, Any] = {"max_positions": config.max_positions}
    known |= {"encoder_kind": "packed"} if precision == INT8 else {}  # which has the int8 products
    with without_initialization():
        task = SentenceClassificationTask(config, _dictionary(checkpoint), Dictionary())
        model = checkpoint.model_class().build_model(checkpoint.arguments_with(**known), task)
        model.register_classification_head(head, num_classes=checkpoint.classes)
    return _loaded(model, checkpoint, device, precision)


def build_encoder(checkpoint: Checkpoint, device: torch.device, precision: str) -> RobertaSmall:
    """The network of an encoder, whatever its heads, for hidden states; errors as for `build_classifier`."""
    model_class = checkpoint.model_class()
    if not issubclass(model_class, RobertaSmall):
        raise UserError(f"{checkpoint.path}: an n-gram classifier, which has no hidden states")
    known: dict[str, Any] = {"encoder_kind": "packed", "tokens_per_sample": None}
    if checkpoint.positions < UNLIMITED:  # sinusoids have the length that training stated
        known["max_positions"] = checkpoint.positions
    with without_initialization():
        task = argparse.Namespace(source_dictionary=_dictionary(checkpoint))
        model = model_class.build_model(checkpoint.arguments_with(**known), task)
        # Below `encoder`, or `decoder` in checkpoints of 2019.
        if not any(".lm_head." in key for key in checkpoint.weights):
            model.encoder.lm_head = None
        for name in {key.split(".")[1] for key in checkpoint.weights if key.startswith(HEADS)}:
            model.register_classification_head(name, num_classes=len(checkpoint.weights[head_weight(name)]))
    return _loaded(model, checkpoint, device, precision)


def build_language_model(checkpoint: Checkpoint, device: torch.device, precision: str) -> CausalRobertaSmall:
    """The network of a left-to-right language model; errors as for `build_classifier`."""
    if precision == INT8:
        raise UserError(f"--precision {INT8}: not for generating text; use fp32 or bf16")
    with without_initialization():
        task = argparse.Namespace(source_dictionary=_dictionary(checkpoint))
        model = checkpoint.language_model_class().build_model(checkpoint.arguments_with(), task)
    return _loaded(model, checkpoint, device, precision)


def _dictionary(checkpoint: Checkpoint) -> Dictionary:
    """A dictionary of the size of the checkpoint's: a model needs nothing else of it."""
    dictionary = Dictionary()
    dictionary.symbols += [""] * ((checkpoint.vocabulary or 0) - len(dictionary))
    return dictionary


AnyModel = TypeVar("AnyModel", bound=RobertaSmall | NgramClassifier)


def _loaded(model: AnyModel, checkpoint: Checkpoint, device: torch.device, precision: str) -> AnyModel:
    """The model with its weights, in evaluation mode on its device.

    In int8, `checkpoint` keeps only their shapes, so that those in fp32 leave memory when they are replaced.
    """
    limit_kernels()
    # The head is that of the checkpoint. The upgrade, which is for training, would replace others.
    own = tuple(f"{HEADS}{name}." for name in model.classification_heads)
    heads = {name: weight for name, weight in checkpoint.weights.items() if name.startswith(own)}
    weights = _without_heads(checkpoint.weights)
    model.upgrade_state_dict(weights)
    load_weights(model, _without_heads(weights) | heads, checkpoint.path)
    if precision == INT8:
        del weights, heads
        checkpoint.weights.update({name: w.to("meta") for name, w in checkpoint.weights.items()})
        if device.type != "cpu":
            raise UserError(f"--precision {INT8}: computes on a CPU; add --device cpu, or use bf16")
        if isinstance(model, NgramClassifier):
            raise UserError(
                f"{checkpoint.path}: --precision {INT8}: an n-gram classifier has no encoder; omit the option"
            )
        int8.quantize(model.encoder.sentence_encoder)
        precision = FP32  # of everything else
    model.args.precision = precision
    return model.to(device).eval()


def _without_heads(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: weight for name, weight in weights.items() if not name.startswith(HEADS)}


def load_weights(model: nn.Module, weights: dict[str, Tensor], path: Path) -> None:
    """Load all weights; raises `UserError`, naming the checkpoint `path`, if names or shapes differ."""
    wanted = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    found = {key: tuple(value.shape) for key, value in weights.items()}
    if wanted != found:
        differing = sorted(key for key in wanted | found if wanted.get(key) != found.get(key))
        shown = "; ".join(
            f"{key} is {found.get(key, 'missing')} instead of {wanted.get(key, 'absent')}"
            for key in differing[:DIFFERENCES_SHOWN]
        )
        raise UserError(
            f"{path}: the weights do not match the model configuration ({shown}); copy the file again, or "
            "use one that fairseq wrote"
        )
    # Assigned instead of copied, of the type of the model: stock fairseq writes fp16 with --fp16.
    types = {key: value.dtype for key, value in model.state_dict().items()}
    weights = {key: value.to(types[key]) for key, value in weights.items()}
    nn.Module.load_state_dict(model, weights, assign=True)  # fairseq's lacks `assign`


class _WithoutInitialization(TorchFunctionMode):
    def __torch_function__(
        self, function: Callable, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in FILLERS:  # the tensor itself instead of random numbers in it
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


@contextlib.contextmanager
def without_initialization() -> Iterator[None]:
    """Leave the parameters of new models as they are in memory, to be replaced by those of a checkpoint."""
    with torch.random.fork_rng(devices=[]), _WithoutInitialization():
        yield


def text_dictionary(path: Path) -> Dictionary:
    """fairseq's dictionary of the text, with `<mask>`; raises `UserError` as `load_dictionary`."""
    dictionary = load_dictionary(path)
    dictionary.add_symbol(MASK)
    return dictionary


def read_split(
    checkpoint: Checkpoint,
    dictionary: Dictionary,
    classes: list[str],
    data: str | os.PathLike[str],
    split: str,
) -> Examples:
    """Read `split` of the folder `data` with the checkpoint's task.

    `classes` are the checkpoint's class names. Labels are matched to them by name, because data folders may
    number classes differently. Raises `UserError` for missing or malformed data, an example that is too long,
    and a class that the checkpoint does not have.
    """
    label_path = Path(data) / "label" / "dict.txt"
    label_dictionary = load_dictionary(label_path) if checkpoint.kind.has_classes else Dictionary()
    names = class_names(label_dictionary)
    config = checkpoint.task_config(str(data))
    kind_and_scaling(config)  # the data have labels of this kind
    if checkpoint.kind.has_classes:
        config.num_classes = max(len(names), checkpoint.classes)
    task = SentenceClassificationTask(config, dictionary, label_dictionary, checkpoint.scaling)
    dataset = task.load_dataset(split)
    items = [dataset[i] for i in range(len(dataset))]
    rows = [item["net_input.src_tokens"].numpy() for item in items]
    if not checkpoint.kind.has_classes:
        return Examples(rows, load_numbers(str(data), split), classes)
    target = np.array([item["target"].numpy() for item in items])
    index = {name: k for k, name in enumerate(classes)}
    if checkpoint.kind.exclusive:
        labels_N = target.reshape(-1).astype(np.int64)
        sentences, used = np.arange(len(labels_N)), labels_N
    else:
        sentences, used = (target > 0).nonzero()
    for number, k in zip(sentences.tolist(), used.tolist(), strict=True):
        if names[k] not in index:
            raise UserError(
                f"{label_path}: the class '{names[k]}' of sentence {number + 1} of {split} is not one of "
                f"{', '.join(classes)}, the classes of {checkpoint.path}; "
                f"correct the labels and {WRITE_AGAIN}"
            )
    if checkpoint.kind.exclusive:
        return Examples(rows, np.array([index.get(name, -1) for name in names])[labels_N], classes)
    targets_NK = np.zeros((len(rows), len(classes)), dtype=bool)
    for k, name in enumerate(names):
        if name in index:
            targets_NK[:, index[name]] = target[:, k] > 0
    return Examples(rows, targets_NK, classes)
