"""The task and the criterion `distillation`: an encoder learns the hidden states of another one.

The teacher has read the text before (`experiments/methods/teacher.py`); its vectors are in a folder of
memory-mapped shards. As Jiao et al. (2020), hidden states are compared after a linear projection; the loss is
that of Reimers & Gurevych (2020), a mean squared error, for tokens and for the means of texts. The first
token of a student that reads in both directions learns the mean as well, because classifiers read the one or
the other.

Shapes: B texts, L tokens of the longest, N tokens without padding, C width of the student, D of the teacher.
"""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.criterions import register_criterion
from fairseq.data import Dictionary, FairseqDataset, PrependTokenDataset, SortDataset, data_utils
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask, register_task
from fairseq.utils import split_paths
from omegaconf import II, MISSING
from torch import Tensor, nn

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.models.causal import CausalRobertaSmall
from roberta_small.fairseq_plugin.tasks.batches import packing_of
from roberta_small.fairseq_plugin.tasks.datasets import examples_of, load_split
from roberta_small.fairseq_plugin.tasks.objectives import SummedCriterion
from roberta_small.fairseq_plugin.tasks.sentence_classification import load_dictionary
from roberta_small.preprocess.indexed import text_blocks

RECORD = "teacher.json"
"""The file that describes the shards."""
TOKENS, TEXTS = "tokens", "texts"
"""What has a vector: every token, or only each text."""


@dataclass
class DistillationConfig(FairseqDataclass):
    """Flags of the task."""

    data: str = field(
        default=MISSING, metadata={"help": "folder of binarized text, or its shards separated by colons"}
    )
    teacher_vectors: str = field(default="", metadata={"help": "folder of the teacher's vectors"})
    tokens_per_sample: int = field(default=256, metadata={"help": "max tokens per text, with <s>"})
    seed: int = II("common.seed")
    train_subset: str = II("dataset.train_subset")


@register_task("distillation", dataclass=DistillationConfig)
class DistillationTask(FairseqTask):
    """Texts, and the teacher's vectors of them."""

    pads_right = True

    def __init__(self, cfg: DistillationConfig, dictionary: Dictionary) -> None:
        super().__init__(cfg)
        self.dictionary = dictionary
        self.width, self.causal = 0, False
        """C, and whether the student is left-to-right; known when the model is built."""

    @classmethod
    def setup_task(cls, cfg: DistillationConfig, **kwargs: Any) -> "DistillationTask":
        """Load the dictionary."""
        dictionary = load_dictionary(Path(split_paths(cfg.data)[0]) / "dict.txt")
        dictionary.add_symbol("<mask>")
        return cls(cfg, dictionary)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> BaseFairseqModel:
        """Build the student."""
        model = super().build_model(cfg, from_checkpoint)
        self.causal = isinstance(model, CausalRobertaSmall)
        self.width = model.encoder.sentence_encoder.embed_tokens.embedding_dim
        return model

    def parts(self, split: str) -> list[tuple[str, str]]:
        """The names and the folders of the parts of a split: the shards of the training set, or one part.

        A name is that of the part's vectors in teacher.json.
        """
        folders = split_paths(self.cfg.data)
        if len(folders) == 1 or not self._is_train(split):
            return [(split, folders[0])]
        return [(f"{split}-{Path(folder).name}", folder) for folder in folders]

    def texts(self, split: str, folder: str) -> FairseqDataset:
        """The texts of a part of a split, each int64 (L,) with `<s>` first, in the order of the files."""
        blocks = TextBlocks(folder, split, self.dictionary, self.cfg.tokens_per_sample - 1)
        return PrependTokenDataset(blocks, self.dictionary.bos())

    def load_dataset(
        self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any
    ) -> FairseqDataset:
        """Texts with their vectors; those of the training set are shuffled, and one shard for each epoch."""
        parts = self.parts(split)
        name, folder = parts[(epoch - 1) % len(parts)]
        texts = self.texts(split, folder)
        vectors = TeacherVectors(Path(self.cfg.teacher_vectors), name)
        if len(vectors) != len(texts):
            raise UserError(
                f"{self.cfg.teacher_vectors}: vectors of {len(vectors):,} texts of {name}, but the "
                f"data have {len(texts):,}; delete the folder, and the teacher reads the text again"
            )
        with data_utils.numpy_seed(self.cfg.seed):
            order = np.random.permutation(len(texts))
        found = examples_of(texts, self.dictionary.pad(), {"teacher": vectors})
        key = order if self._is_train(split) else texts.sizes
        self.datasets[split] = SortDataset(found, sort_order=[key])
        return self.datasets[split]

    def _is_train(self, split: str) -> bool:
        return split in self.cfg.train_subset.split(",")

    source_dictionary = target_dictionary = property(lambda self: self.dictionary)
    """The student's dictionary, with `<mask>`; fairseq requires both."""

    def max_positions(self) -> int:
        """Maximum number of tokens of a text."""
        return self.cfg.tokens_per_sample

    def teacher(self) -> "TeacherVectors":
        """The teacher's vectors of the training set."""
        name, _ = self.parts(self.cfg.train_subset.split(",")[0])[0]
        return TeacherVectors(Path(self.cfg.teacher_vectors), name)


class TextBlocks(FairseqDataset):
    """The texts of running text (`text_blocks`), int64 (L,), at most `longest` tokens."""

    def __init__(self, data: str, split: str, dictionary: Dictionary, longest: int) -> None:
        sentences = load_split(data, ".", split, dictionary)
        path = Path(data) / f"{split}.bin"
        self._tokens = np.memmap(path, sentences._index.dtype, "r")
        self._bounds = np.array(list(text_blocks(np.asarray(sentences.sizes).tolist(), longest)), np.int64)
        if not len(self._bounds):
            raise UserError(f"{path}: no text")
        self.sizes = self._bounds[:, 1] - self._bounds[:, 0]

    def __len__(self) -> int:
        return len(self._bounds)

    def __getitem__(self, index: int) -> Tensor:
        begin, end = self._bounds[index]
        return torch.from_numpy(self._tokens[begin:end].astype(np.int64))


class TeacherVectors(FairseqDataset):
    """The vectors of each text of a part of a split, fp16 (L, D) or (1, D)."""

    def __init__(self, folder: Path, name: str) -> None:
        """Open the shards; raises `UserError` if one is missing or has another size than recorded."""
        path = folder / RECORD
        if not path.is_file():
            raise UserError(
                f"{path}: no such file; roberta-small pretrain --teacher writes the vectors of a teacher"
            )
        self.record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        self.width: int = self.record["width"]
        self.of: str = self.record["vectors"]
        self.shards, self._begin = [], []
        for shard in self.record["shards"][name]:
            file = folder / shard["file"]
            if not file.is_file() or file.stat().st_size != 2 * self.width * shard["vectors"]:
                raise UserError(
                    f"{file}: missing or truncated; delete {folder}, and the teacher reads the text again"
                )
            self.shards.append(np.memmap(file, np.float16, "r", shape=(shard["vectors"], self.width)))
            self._begin.append(np.cumsum([0, *np.load(folder / shard["sizes"])]))
        self._first = np.cumsum([0, *(len(begin) - 1 for begin in self._begin)])

    def __len__(self) -> int:
        return int(self._first[-1])  # texts

    def __getitem__(self, index: int) -> Tensor:
        shard = int(np.searchsorted(self._first, index, side="right")) - 1
        begin, at = self._begin[shard], index - self._first[shard]
        return torch.from_numpy(np.array(self.shards[shard][begin[at] : begin[at + 1]]))

    def collater(self, samples: list[Tensor]) -> Tensor:
        """Their concatenation, fp16 (N, D)."""
        return torch.cat(samples)


@dataclass
class DistillationCriterionConfig(FairseqDataclass):
    """Flags of the criterion."""

    text_weight: float = field(
        default=8.0, metadata={"help": "weight of the errors of means of texts and of first tokens"}
    )


def check_text_weight(weight: float) -> None:
    """Raise `UserError` for a weight that is negative or not finite."""
    if not 0.0 <= weight < math.inf:
        raise UserError(f"--text-weight {weight}: must be a finite number, 0 or above")


@register_criterion("distillation", dataclass=DistillationCriterionConfig)
class DistillationCriterion(SummedCriterion):
    """Mean squared error of standardized vectors, after a linear projection of the student's.

    The projection belongs to the criterion: it is trained and resumed with the model, but not part of it.
    """

    def __init__(self, task: DistillationTask, text_weight: float = 8.0) -> None:
        super().__init__(task)
        check_text_weight(text_weight)
        self.padding_idx, self.text_weight = task.source_dictionary.pad(), text_weight
        self.first_learns = not task.causal  # a left-to-right model has read nothing at the first token
        vectors = task.teacher()
        self.of_tokens = vectors.of == TOKENS
        self.register_buffer("mean_D", torch.tensor(vectors.record["mean"]), persistent=False)
        self.register_buffer("std_D", torch.tensor(vectors.record["std"]), persistent=False)
        self.projection = nn.Linear(task.width, vectors.width)

    def forward(
        self, model: BaseFairseqModel, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """The loss of a batch, the number of vectors that it is summed over, and the logging output."""
        tokens_BL, packing = sample["net_input"]["src_tokens"], packing_of(sample, self.padding_idx)
        index_N = packing.real_index()
        features_BLC = model.features(tokens_BL, packing)
        students_ND = self.projection(features_BLC.flatten(0, 1).index_select(0, index_N).float())
        teachers_ND = (sample["teacher"].float() - self.mean_D) / self.std_D
        text_N = index_N // tokens_BL.size(1)
        ours_BD = means(students_ND, text_N, len(tokens_BL))
        theirs_BD = means(teachers_ND, text_N, len(tokens_BL)) if self.of_tokens else teachers_ND
        errors = {"text_error": squared_error(ours_BD, theirs_BD)}
        if self.first_learns:
            errors["first_error"] = squared_error(self.projection(features_BLC[:, 0].float()), theirs_BD)
        loss, size = torch.stack([*errors.values()]).sum(), len(tokens_BL)
        if self.of_tokens:
            errors["token_error"], size = squared_error(students_ND, teachers_ND), packing.tokens
            loss = errors["token_error"] + self.text_weight * size / len(tokens_BL) * loss
        return loss, size, {
            "loss": loss.detach(),
            **{name: error.detach() for name, error in errors.items()},
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": size,
        }  # fmt: skip

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Log the loss, and the mean squared errors of what learns: tokens, texts, first tokens."""
        size = sum(int(log.get("sample_size", 0)) for log in logging_outputs)
        if size == 0:
            return
        texts = sum(int(log["nsentences"]) for log in logging_outputs)
        counts = {"loss": size, "token_error": size, "text_error": texts, "first_error": texts}
        for name, count in counts.items():
            found = [float(log[name]) for log in logging_outputs if name in log]
            if found:
                metrics.log_scalar(name, sum(found) / count, count, round=4)


def squared_error(ours_ND: Tensor, theirs_ND: Tensor) -> Tensor:
    """The sum over rows of their mean squared errors: (N, D), (N, D) -> ()."""
    return (ours_ND - theirs_ND).square().mean(1).sum()


def means(x_ND: Tensor, text_N: Tensor, texts: int) -> Tensor:
    """The mean of the rows of each text: (N, D) -> (B, D)."""
    sums_BD = x_ND.new_zeros(texts, x_ND.shape[1]).index_add(0, text_N, x_ND)
    # Unlike `bincount`, without synchronizing a GPU.
    count_B = x_ND.new_zeros(texts).index_add(0, text_N, x_ND.new_ones(len(text_N)))
    return sums_BD / count_B.clamp(min=1).unsqueeze(1)
