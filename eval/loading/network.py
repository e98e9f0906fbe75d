"""The network of a checkpoint: rows of token ids in, logits out, in the order of the rows.

Shapes: N examples, K classes; B sentences in a batch, L tokens in the longest, C embedding size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import init
from torch.overrides import TorchFunctionMode

from roberta_small.common.cli import DEVICES
from roberta_small.common.errors import UserError
from roberta_small.eval.batches import MAX_TOKENS, logits_of
from roberta_small.eval.loading.checkpoint import Checkpoint
from roberta_small.eval.loading.precision import FP32
from roberta_small.eval.memory import limit_kernels
from roberta_small.eval.texts import Ids
from roberta_small.fairseq_plugin.models.roberta import RobertaSmall
from roberta_small.fairseq_plugin.tasks.sentence_classification import SentenceClassificationTask
from roberta_small.fairseq_plugin.training.threads import LoadFollower

DIFFERENCES_SHOWN = 3
FILLERS = {Tensor.normal_, Tensor.uniform_, init.normal_, init.uniform_, init.kaiming_uniform_}
"""What torch and fairseq initialize weights with; most of the time of building a model."""


class Network:
    """A model in evaluation mode on its device.

    Attributes:
        model: a model of the plugin, of the checkpoint's architecture.
        head: name of the classification head.
        device: the device of the model.
        dictionary: dictionary of the text, including `<mask>`.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        dictionary: Dictionary,
        *,
        device: str = "auto",
        precision: str = FP32,
        max_tokens: int = MAX_TOKENS,
    ) -> None:
        """Build the model and load the weights; `precision` is `fp32` or `bf16` (see `precision.py`).

        Raises `UserError` if weights and dictionary do not fit or the device is not available.
        """
        limit_kernels()
        self.device = find_device(device)
        self.head = checkpoint.head
        self.dictionary = dictionary
        self.max_tokens = max_tokens
        self.model = _build(checkpoint, dictionary)
        self.model.args.precision = precision
        self.model.to(self.device).eval()
        self._load = LoadFollower() if self.device.type == "cpu" else None

    def logits(self, rows: Sequence[Ids], *, progress: str | None = None) -> NDArray[np.float32]:
        """The logits (N, K) of rows of ids, in their order; `progress` is the title of a progress bar."""
        classes = self.model.classification_heads[self.head].out_proj.out_features
        return logits_of(rows, self._compute, classes, max_tokens=self.max_tokens, progress=progress)

    @torch.inference_mode()
    def _compute(self, tokens_BL: NDArray[np.int64]) -> NDArray[np.float32]:
        if self._load is not None:
            self._load.update()
        logits_BK, _ = self.model(
            torch.from_numpy(tokens_BL).to(self.device),
            features_only=True,
            classification_head_name=self.head,
        )
        return logits_BK.float().cpu().numpy()

    def head_input(self, tokens_BL: Tensor, embeddings_BLC: Tensor) -> Tensor:
        """The input of the classification head, (B, 1, C), computed from token embeddings."""
        encoder = self.model.encoder.sentence_encoder
        if hasattr(encoder, "pooled"):
            return encoder.pooled(tokens_BL, self.model.args.pooling, embeddings_BLC).unsqueeze(1)
        encoded = encoder(tokens_BL, token_embeddings=embeddings_BLC)
        return encoded["encoder_out"][0][:1].transpose(0, 1)


def find_device(name: str) -> torch.device:
    """`auto` is the GPU if there is one; raises `UserError` if the requested device is not available."""
    if name not in DEVICES:
        raise UserError(f"device '{name}': choose one of {', '.join(DEVICES)}")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: PyTorch does not detect a GPU; check nvidia-smi or use --device cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def _build(checkpoint: Checkpoint, dictionary: Dictionary) -> RobertaSmall:
    task = SentenceClassificationTask(checkpoint.task_config(), dictionary, Dictionary())
    checkpoint.arguments.max_positions = task.cfg.max_positions
    with torch.random.fork_rng(devices=[]), WithoutInitialization():
        model = checkpoint.model.build_model(checkpoint.arguments, task)
        model.register_classification_head(checkpoint.head, num_classes=checkpoint.classes)
    weights = dict(checkpoint.weights)
    model.upgrade_state_dict(weights)
    load_weights(model, weights, checkpoint.path)
    return model


def load_weights(model: torch.nn.Module, weights: dict[str, Tensor], path: Path) -> None:
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
            f"{path}: the weights do not match the model configuration and the dictionary ({shown}); "
            "pass the dictionary of training with --dict"
        )
    # Assigned instead of copied, of the type of the model: stock fairseq writes fp16 with --fp16.
    types = {key: value.dtype for key, value in model.state_dict().items()}
    weights = {key: value.to(types[key]) for key, value in weights.items()}
    torch.nn.Module.load_state_dict(model, weights, assign=True)  # fairseq's lacks `assign`


class WithoutInitialization(TorchFunctionMode):
    """Leaves the parameters of a new model as they are in memory, to be replaced by those of a checkpoint."""

    def __torch_function__(
        self, function: Callable, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The tensor itself instead of random numbers in it."""
        kwargs = kwargs or {}
        if function in FILLERS:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)
