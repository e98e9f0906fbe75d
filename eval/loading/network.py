"""The network of a checkpoint: rows of token ids in, logits out, in the order of the rows.

Shapes: N examples, K classes; B sentences in a batch, L tokens in the longest, C embedding size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from fairseq.data import Dictionary
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from common.cli import DEVICES
from common.errors import UserError
from fairseq_plugin.models.roberta import RobertaSmall
from fairseq_plugin.tasks.sentence_classification import SentenceClassificationTask

from .checkpoint import Checkpoint
from .inputs import Ids
from .precision import FP32

MAX_TOKENS = 4096
DIFFERENCES_SHOWN = 3


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
        self.device = find_device(device)
        self.head = checkpoint.head
        self.dictionary = dictionary
        self.max_tokens = max_tokens
        self.model = _build(checkpoint, dictionary)
        self.model.args.precision = precision
        self.model.to(self.device).eval()

    def logits(self, rows: Sequence[Ids], *, progress: str | None = None) -> NDArray[np.float32]:
        """The logits (N, K) of rows of ids, in their order; `progress` is the title of a progress bar."""
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        classes = self.model.classification_heads[self.head].out_proj.out_features
        logits_NK = np.empty((len(rows), classes), dtype=np.float32)
        bar = tqdm(total=len(rows), desc=progress, leave=False, disable=None if progress else True)
        with torch.inference_mode(), bar:
            for batch in batches(lengths, self.max_tokens):
                tokens_BL = torch.from_numpy(pad([rows[i] for i in batch], self.dictionary.pad()))
                logits_BK, _ = self.model(
                    tokens_BL.to(self.device), features_only=True, classification_head_name=self.head
                )
                logits_NK[batch] = logits_BK.float().cpu().numpy()
                bar.update(len(batch))
        return logits_NK

    def head_input(self, tokens_BL: Tensor, embeddings_BLC: Tensor) -> Tensor:
        """The input of the classification head, (B, 1, C), computed from token embeddings."""
        encoder = self.model.encoder.sentence_encoder
        if hasattr(encoder, "pooled"):
            return encoder.pooled(tokens_BL, self.model.args.pooling, embeddings_BLC).unsqueeze(1)
        encoded = encoder(tokens_BL, token_embeddings=embeddings_BLC)
        return encoded["encoder_out"][0][:1].transpose(0, 1)


def probabilities(logits_NK: NDArray[np.float32]) -> NDArray[np.float64]:
    """Softmax over the classes, (N, K) float64."""
    return torch.softmax(torch.from_numpy(logits_NK).double(), dim=-1).numpy()


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
    with torch.random.fork_rng(devices=[]):
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
    model.load_state_dict(weights)


def batches(lengths: NDArray[np.int64], max_tokens: int) -> Iterator[NDArray[np.int64]]:
    """Yield the indices of each batch; every sentence is in exactly one.

    A batch of B sentences of up to L tokens has B * L <= `max_tokens`, padding included; a longer sentence is
    a batch of its own. The longest sentences come first, so that a lack of memory shows at once.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        size = max(1, max_tokens // max(1, int(lengths[order[start]])))
        yield order[start : start + size]
        start += size


def pad(rows: list[NDArray[np.int64]], padding: int) -> NDArray[np.int64]:
    """Rows of ids -> (B, L) int64, padded on the right."""
    padded_BL = np.full((len(rows), max(map(len, rows))), padding, dtype=np.int64)
    for row_L, ids in zip(padded_BL, rows, strict=True):
        row_L[: len(ids)] = ids
    return padded_BL
