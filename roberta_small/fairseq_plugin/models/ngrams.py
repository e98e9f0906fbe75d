"""The model `ngram_classifier`: a linear classifier of the n-grams of tokens of a text, without an encoder.

Each text is a bag of the n-grams of its token ids, hashed into J buckets (Weinberger et al. 2009; fastText,
Joulin et al. 2017, arXiv:1607.01759). The logit of class k is

    b_k + sum over the buckets j of the text of  x_j * s_j * w_kj

    x_j   TF-IDF: (1 + ln c_j) * (ln((1 + N) / (1 + n_j)) + 1), divided by the 2-norm over the text; c_j is
          the number of occurrences in the text, n_j the number of the N training texts that contain j
    s_j   how strongly j distinguishes the classes in training: the largest minus the smallest ln p(j | k)
          over the classes k, with add-one smoothing. For two classes, this is the size of the log-count
          ratio of Wang and Manning (2012, "Baselines and Bigrams"). For multi-label data, the largest
          log-count ratio of a class and its complement; for numeric labels, the size of the sum of the
          standardized labels of the n_j texts that contain j, divided by n_j + 1.

x and s are computed from the training texts before the first update; w and b are trained, from zero. Buckets
that no training text contains have s = 0.

N-grams do not contain special symbols and do not reach across them.

Shapes: B texts, L tokens, G n-grams of all texts, D distinct pairs of a text and a bucket, J buckets,
K classes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.models import BaseFairseqModel, register_model, register_model_architecture
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from roberta_small.common.errors import UserError
from roberta_small.common.label_kinds import KINDS, MULTI_LABEL, REGRESSION, SINGLE_LABEL, LabelKind
from roberta_small.fairseq_plugin.models.roberta import set_missing
from roberta_small.fairseq_plugin.tasks.sentence_classification import SentenceClassificationTask

ORDER, MAX_ORDER = 2, 5
"""Number of tokens of the longest n-grams: default and maximum."""
BUCKETS, MAX_BUCKETS = 1 << 19, 1 << 28
MULTIPLIER = 0x9E3779B97F4A7C15 - (1 << 64)
"""Of multiplicative hashing (Knuth): 2^64 divided by the golden ratio, as a signed integer."""
SPECIAL = 4  # the ids below are fairseq's special symbols


@register_model("ngram_classifier")
class NgramClassifier(BaseFairseqModel):
    """A linear classifier of hashed n-grams; `prepare` must be called before training."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.args = args
        self.classification_heads = nn.ModuleDict()

    @staticmethod
    def add_args(parser: argparse.ArgumentParser) -> None:
        """Add the flags of the model."""
        parser.add_argument(
            "--ngrams",
            type=int,
            metavar="N",
            help=f"number of tokens of the longest n-grams (default: {ORDER}; at most {MAX_ORDER})",
        )
        parser.add_argument(
            "--ngram-buckets",
            type=int,
            metavar="J",
            help=f"number of buckets that n-grams are hashed to (default: {BUCKETS:,})",
        )

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: FairseqTask) -> NgramClassifier:
        """Build from fairseq's arguments; raises `UserError` for another task and for invalid sizes."""
        ngram_classifier_architecture(args)
        if not isinstance(task, SentenceClassificationTask):
            raise UserError("--arch ngram_classifier: use it with --task sentence_classification")
        if not 1 <= args.ngrams <= MAX_ORDER:
            raise UserError(f"--ngrams {args.ngrams}: must be from 1 to {MAX_ORDER}")
        if not 2 <= args.ngram_buckets <= MAX_BUCKETS:
            raise UserError(f"--ngram-buckets {args.ngram_buckets}: must be from 2 to {MAX_BUCKETS:,}")
        return cls(args)

    def register_classification_head(self, name: str, num_classes: int = 2, **unused: Any) -> None:
        """Add a head with zero weights."""
        self.classification_heads[name] = NgramHead(self.args.ngrams, self.args.ngram_buckets, num_classes)

    def forward(
        self, src_tokens: Tensor, *, classification_head_name: str, **unused: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """`src_tokens` (B, L), int64, padded on the right -> logits (B, K), float32."""
        return self.classification_heads[classification_head_name](src_tokens), {}

    def max_positions(self) -> int:
        """The longest text in tokens: no limit beside that of the task."""
        return self.args.max_positions

    def prepare(self, task: SentenceClassificationTask) -> str:
        """Compute the statistics of the training texts; returns a line for the log."""
        examples = task.training_examples()
        head = self.classification_heads[task.cfg.classification_head_name]
        assert isinstance(head, NgramHead)
        head.count(examples, task.labels.kind)
        seen, buckets = int((head.spread > 0).sum()), self.args.ngram_buckets
        return f"n-grams: {seen:,} of {buckets:,} buckets occur in {len(examples):,} training texts"


class NgramHead(nn.Module):
    """Logits from the n-grams of 1 to `order` tokens."""

    idf: Tensor
    """(J,), float32."""
    spread: Tensor
    """(J,), float32: of the log-probabilities over the classes."""

    def __init__(self, order: int, buckets: int, classes: int) -> None:
        super().__init__()
        self.order, self.buckets, self.classes = order, buckets, classes
        self.out_proj = nn.Linear(buckets, classes)
        for parameter in self.out_proj.parameters():
            nn.init.zeros_(parameter)
        self.register_buffer("idf", torch.ones(buckets))
        self.register_buffer("spread", torch.zeros(buckets))

    def forward(self, src_tokens: Tensor) -> Tensor:
        """(B, L) token ids, int64 -> (B, K) logits, float32."""
        text_D, bucket_D, value_D, _ = self.values(src_tokens)
        terms_DK = value_D[:, None] * F.embedding(bucket_D, self.out_proj.weight.t())
        logits_BK = terms_DK.new_zeros(len(src_tokens), self.classes).index_add(0, text_D, terms_DK)
        return logits_BK + self.out_proj.bias

    def values(self, src_tokens: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The distinct buckets of each text, (D,): row, bucket (int64), x_j * s_j and c_j (float32)."""
        text_D, bucket_D, count_D = self.occurrences(src_tokens)
        tfidf_D = (1 + count_D.log()) * self.idf[bucket_D]
        square_B = tfidf_D.new_zeros(len(src_tokens)).index_add_(0, text_D, tfidf_D.square())
        return text_D, bucket_D, tfidf_D * self.spread[bucket_D] / square_B.sqrt()[text_D], count_D

    def occurrences(self, src_tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The distinct buckets of each text, (D,): row of `src_tokens`, bucket (int64), count (float32)."""
        row_B1 = torch.arange(len(src_tokens), device=src_tokens.device)[:, None]
        keys = [(row_B1 * self.buckets + bucket)[valid] for bucket, valid in self.hashed(src_tokens)]
        key_D, count_D = torch.cat(keys).unique(return_counts=True)
        return key_D // self.buckets, key_D % self.buckets, count_D.float()

    def hashed(self, src_tokens: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """For n = 1, 2, ...: the buckets of the n-grams that begin at each token, and whether they count.

        Both are (B, L - n + 1), int64 and bool. An n-gram with a special symbol does not count.
        """
        hash_BL, known_BL = src_tokens * MULTIPLIER, src_tokens >= SPECIAL
        gram, valid = hash_BL, known_BL
        for n in range(1, min(self.order, src_tokens.size(1)) + 1):
            if n > 1:
                gram = gram[:, :-1] * MULTIPLIER + hash_BL[:, n - 1 :]
                valid = valid[:, :-1] & known_BL[:, n - 1 :]
            # The upper bits of a product depend on all bits of its factors.
            yield ((gram ^ (gram >> 32)) * MULTIPLIER >> 24) % self.buckets, valid

    @torch.no_grad()
    def contributions(self, tokens_L: Tensor) -> Tensor:
        """What each token of a text contributes to the predicted class, (L,), float64.

        The explained value is the logit of the predicted class minus the mean of the other logits; without
        the bias, it is the sum of the contributions. The term of an n-gram is divided equally among its
        occurrences and their tokens.
        """
        src_tokens_1L = tokens_L[None]
        predicted = int(self(src_tokens_1L).argmax())
        _, bucket_D, value_D, count_D = self.values(src_tokens_1L)
        weight_KD = self.out_proj.weight[:, bucket_D]
        others_D = (weight_KD.sum(dim=0) - weight_KD[predicted]) / max(1, self.classes - 1)
        term_D = (weight_KD[predicted] - others_D) * value_D / count_D
        term_of = dict(zip(bucket_D.tolist(), term_D.tolist(), strict=True))
        scores_L = [0.0] * len(tokens_L)
        for n, (bucket, valid) in enumerate(self.hashed(src_tokens_1L), start=1):
            for start in valid[0].nonzero().flatten().tolist():
                for token in range(start, start + n):
                    scores_L[token] += term_of[int(bucket[0, start])] / n
        return torch.tensor(scores_L, dtype=torch.float64)

    @torch.no_grad()
    def count(self, examples: list[tuple[Tensor, Any]], kind: LabelKind = KINDS[SINGLE_LABEL]) -> None:
        """Set `idf` and `spread` from training examples: token ids (L,), int64, and a target each.

        The targets are those of `SentenceClassificationTask.training_examples`.
        """
        count_of: dict[str, Callable[[Iterable[Any]], tuple[np.ndarray, np.ndarray]]] = {
            SINGLE_LABEL: self._of_classes,
            MULTI_LABEL: self._of_sets,
            REGRESSION: self._of_numbers,
        }
        buckets = ((self.occurrences(x_L[None])[1].numpy(), target) for x_L, target in examples)
        texts_J, spread_J = count_of[kind.name](buckets)
        idf_J = np.log((1 + len(examples)) / (1 + texts_J)) + 1
        self.spread.copy_(torch.from_numpy(np.where(texts_J > 0, spread_J, 0.0)))
        self.idf.copy_(torch.from_numpy(idf_J))

    def _of_classes(self, examples: Iterable[tuple[np.ndarray, int]]) -> tuple[np.ndarray, np.ndarray]:
        """Number of texts and spread of each bucket, (J,)."""
        texts_KJ = np.zeros((self.classes, self.buckets))
        for bucket_D, label in examples:
            texts_KJ[label, bucket_D] += 1
        log_KJ = np.log((texts_KJ + 1) / (texts_KJ + 1).sum(axis=1, keepdims=True))
        return texts_KJ.sum(axis=0), log_KJ.max(axis=0) - log_KJ.min(axis=0)

    def _of_sets(self, examples: Iterable[tuple[np.ndarray, Tensor]]) -> tuple[np.ndarray, np.ndarray]:
        """Number of texts and spread, (J,), for targets (K,), 0 or 1."""
        texts_J, texts_KJ = np.zeros(self.buckets), np.zeros((self.classes, self.buckets))
        for bucket_D, target_K in examples:
            texts_J[bucket_D] += 1
            for k in target_K.nonzero().flatten().tolist():
                texts_KJ[k, bucket_D] += 1
        spread_J = np.zeros(self.buckets)
        for texts in texts_KJ:  # one class at a time needs less memory
            logs = [np.log((n_J + 1) / (n_J + 1).sum()) for n_J in (texts, texts_J - texts)]
            spread_J = np.maximum(spread_J, np.abs(logs[0] - logs[1]))
        return texts_J, spread_J

    def _of_numbers(self, examples: Iterable[tuple[np.ndarray, Tensor]]) -> tuple[np.ndarray, np.ndarray]:
        """Number of texts and spread, (J,), for standardized numbers."""
        texts_J, sum_J = np.zeros(self.buckets), np.zeros(self.buckets)
        for bucket_D, target in examples:
            texts_J[bucket_D] += 1
            sum_J[bucket_D] += float(target)
        return texts_J, np.abs(sum_J) / (texts_J + 1)


@register_model_architecture("ngram_classifier", "ngram_classifier")
def ngram_classifier_architecture(args: argparse.Namespace) -> None:
    """Set the defaults of flags that are not given."""
    set_missing(args, ngrams=ORDER, ngram_buckets=BUCKETS, precision="fp32")
