"""Cross-validation of linear classifiers of n-grams on the train and valid examples of a data folder.

    python results/ngrams/cross_validation.py DATA TEXT [--more DATA TEXT] [--folds 5] [--repeats 2] --out CSV

DATA is a binarized folder and TEXT the folder of its text files (train.input0, valid.input0). Each method is
trained on the examples outside a fold and evaluated on the fold. The test set is not read. With --more, the
training examples of a second pair of folders are added to the training part of every fold.

All methods have the same stratified folds. The standard error of a difference is the corrected one of Nadeau
and Bengio (2003), because the training sets of different folds overlap.

N examples, L tokens, K classes.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import RepeatedStratifiedKFold
from tqdm import tqdm

import roberta_small.fairseq_plugin  # noqa: F401  before fairseq, whose logging it restrains
from roberta_small.common.files import atomic_write
from roberta_small.fairseq_plugin.models.ngrams import BUCKETS, NgramHead
from roberta_small.fairseq_plugin.tasks.sentence_classification import (
    SentenceClassificationConfig,
    SentenceClassificationTask,
)
from roberta_small.fairseq_plugin.training.optimizer import SharedAdam
from roberta_small.preprocess.readers.lines import read_text_lines

EPOCHS, BATCH, WARMUP = 5, 8, 0.06
"""As in recipes/ngrams.txt."""
STRENGTHS = [1.0, 10**0.5, 10.0, 10**1.5, 100.0]
"""C of the logistic regressions, chosen by a cross-validation of four folds within the training part."""
TRUNCATED = 254
"""Tokens that roberta_small reads of a text, beside <s> and </s>."""


@dataclass(frozen=True)
class Examples:
    """Texts with their token ids and classes."""

    texts: list[str]
    tokens: list[torch.Tensor]
    """(L,), int64, with `</s>`."""
    labels: NDArray[np.int64]
    """(N,)."""

    def take(self, rows: NDArray[np.int64]) -> Examples:
        """The examples of these rows."""
        return Examples([self.texts[i] for i in rows], [self.tokens[i] for i in rows], self.labels[rows])

    def plus(self, other: Examples | None) -> Examples:
        """These examples and those of `other`."""
        if other is None:
            return self
        labels = np.concatenate([self.labels, other.labels])
        return Examples(self.texts + other.texts, self.tokens + other.tokens, labels)


Method = Callable[[Examples, Examples], NDArray[np.int64]]
"""`method(train, held_out)`: the predicted classes (N,) of the held-out examples."""


def read(data: str, text: str, splits: str, classes: list[str] | None = None) -> tuple[Examples, list[str]]:
    """The examples of comma-separated splits, and the names of the classes that the labels refer to."""
    config = SentenceClassificationConfig(data=data, train_subset=splits, max_positions=1_000_000)
    task = SentenceClassificationTask.setup_task(config)
    names = classes or task.class_names
    tokens, labels = zip(*task.training_examples(), strict=True)
    files = [Path(text, f"{split}.input0") for split in splits.split(",")]
    texts = [line for file in files for line in read_text_lines(str(file))]
    if len(texts) != len(tokens):
        raise SystemExit(f"error: {text}: {len(texts)} texts, but {data} has {len(tokens)}")
    numbers = np.array([names.index(task.class_names[label]) for label in labels])
    return Examples(texts, list(tokens), numbers), names


def regression(
    train: Examples, held_out: Examples, *, subwords: bool = True, ratio: bool = False
) -> NDArray[np.int64]:
    """Logistic regression on TF-IDF, or on the log-count ratios of Wang and Manning (2012).

    Subword tokens are ids without special symbols.
    """

    def texts(examples: Examples) -> list[str]:
        ids = (" ".join(str(i) for i in row.tolist() if i > 3) for row in examples.tokens)
        return list(ids) if subwords else examples.texts

    pattern = r"\S+" if subwords else r"(?u)\b\w\w+\b"
    settings = {"ngram_range": (1, 2), "token_pattern": pattern, "dtype": np.float64}
    vectorizer = (
        CountVectorizer(binary=True, **settings) if ratio else TfidfVectorizer(sublinear_tf=True, **settings)
    )
    x_NV, held_out_NV = vectorizer.fit_transform(texts(train)), vectorizer.transform(texts(held_out))
    if ratio:
        # log p(n-gram | class 1) - log p(n-gram | class 0), with add-one smoothing
        counts_KV = np.stack([np.asarray(x_NV[train.labels == k].sum(axis=0)).ravel() + 1 for k in (0, 1)])
        log_KV = np.log(counts_KV / counts_KV.sum(axis=1, keepdims=True))
        scale = sparse.diags(log_KV[1] - log_KV[0])
        x_NV, held_out_NV = x_NV @ scale, held_out_NV @ scale
    model = LogisticRegressionCV(
        Cs=STRENGTHS, cv=4, solver="liblinear", l1_ratios=(0,), scoring="accuracy",
        use_legacy_attributes=False,
    )  # fmt: skip
    return model.fit(x_NV, train.labels).predict(held_out_NV)


def ngrams(
    train: Examples,
    held_out: Examples,
    *,
    order: int = 2,
    buckets: int = BUCKETS,
    lr: float = 0.01,
    most_tokens: int | None = None,
    weighted: bool = True,
) -> NDArray[np.int64]:
    """The model ngram_classifier, trained as in recipes/ngrams.txt; without `weighted`, all s are 1."""
    rows = [row[:most_tokens] for row in train.tokens]
    head = NgramHead(order, buckets, int(train.labels.max()) + 1)
    head.count(list(zip(rows, train.labels.tolist(), strict=True)))
    if not weighted:
        head.spread.fill_(1.0)
    optimizer = SharedAdam(head.parameters(), lr=lr, betas=(0.9, 0.98), eps=1e-8)
    labels_N, generator = torch.from_numpy(train.labels), torch.Generator().manual_seed(1)
    updates = EPOCHS * -(-len(rows) // BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, functools.partial(rate, updates=updates))
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(rows), generator=generator).split(BATCH):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(head(padded([rows[i] for i in batch])), labels_N[batch])
            loss.backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        logits = [head(padded([row[:most_tokens]]))[0] for row in held_out.tokens]
    return torch.stack(logits).argmax(dim=1).numpy()


def rate(update: int, updates: int) -> float:
    """The learning rate of an update as a fraction of its maximum: linear warm-up, then linear to 0."""
    warmup = max(1, int(WARMUP * updates))
    return (update + 1) / warmup if update < warmup else max(0.0, (updates - update) / (updates - warmup))


def padded(rows: list[torch.Tensor]) -> torch.Tensor:
    """(N, L) int64."""
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=1)


METHODS: dict[str, Method] = {
    "TF-IDF of words, logistic regression": functools.partial(regression, subwords=False),
    "TF-IDF of subwords, logistic regression": regression,
    "log-count ratios of subwords, logistic regression": functools.partial(regression, ratio=True),
    "ngram_classifier": ngrams,
    "without the weights s": functools.partial(ngrams, weighted=False),
    "unigrams": functools.partial(ngrams, order=1),
    "up to trigrams": functools.partial(ngrams, order=3),
    "65,536 buckets": functools.partial(ngrams, buckets=1 << 16),
    "first 254 tokens": functools.partial(ngrams, most_tokens=TRUNCATED),
    "lr 0.003": functools.partial(ngrams, lr=0.003),
    "lr 0.03": functools.partial(ngrams, lr=0.03),
}


def standard_error(differences: NDArray[np.float64], folds: int) -> float:
    """Nadeau and Bengio (2003), with 1 / (folds - 1) as the ratio of test and training examples."""
    return float(np.sqrt((1 / len(differences) + 1 / (folds - 1)) * differences.var(ddof=1)))


def main() -> None:
    """Write the table, one row for each method."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data")
    parser.add_argument("text")
    parser.add_argument("--more", nargs=2, metavar=("DATA", "TEXT"))
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    examples, classes = read(args.data, args.text, "train,valid")
    more = read(*args.more, "train", classes)[0] if args.more else None

    splitter = RepeatedStratifiedKFold(n_splits=args.folds, n_repeats=args.repeats, random_state=1)
    folds = list(splitter.split(examples.labels, examples.labels))

    def score(method: Method, train: NDArray[np.int64], rest: NDArray[np.int64]) -> float:
        predicted = method(examples.take(train).plus(more), examples.take(rest))
        return float(np.mean(predicted == examples.labels[rest]))

    accuracy = {
        name: np.array([score(METHODS[name], train, rest) for train, rest in folds])
        for name in tqdm(args.methods)
    }
    first = accuracy[args.methods[0]]
    table = pd.DataFrame(
        {
            "method": name,
            "folds": len(folds),
            "accuracy": 100 * values.mean(),
            "difference": 100 * (values - first).mean(),
            "standard_error": 100 * standard_error(values - first, args.folds),
        }
        for name, values in accuracy.items()
    )
    atomic_write(args.out, table.to_csv(index=False, float_format="%.6g"))


if __name__ == "__main__":
    main()
