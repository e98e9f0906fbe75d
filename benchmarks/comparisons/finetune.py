"""An update of fine-tuning with the reference recipe: stock fairseq, ours, the Transformers Trainer."""

from __future__ import annotations

import functools
import json
import math
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import fairseq_commands, tools
from benchmarks.measure import Contender, compare, execute, say, timed
from benchmarks.settings import Settings
from benchmarks.timed import Clock, fairseq_train

if TYPE_CHECKING:
    from torch import Tensor

SEED = 1
PAD = 1
"""Id in fairseq's dictionaries."""
MULTIPLE = 8
"""fairseq's --required-batch-size-multiple."""
CHECKED = 3
"""Updates without dropout, of which the first losses are compared."""
NO_DROPOUT = dict.fromkeys(
    ("--dropout", "--attention-dropout", "--activation-dropout", "--pooler-dropout"), "0"
)
Review = dict[str, Any]
"""`input_ids` and, for training, `labels` of a sentence."""


def run(settings: Settings) -> dict[str, Any]:
    """Seconds of an update, data loading and logging included; no validation, no saving."""
    sizes, encoder = settings.sizes, settings.encoder
    what = f"{sizes.layers} layers of size {sizes.embed}" if encoder is None else encoder.name
    return compare(
        "finetune",
        f"Fine-tuning {what}, an update of {settings.batch_size} sentences",
        contenders(settings),
        settings,
        agreement=first_losses(settings),
        batch_size=settings.batch_size,
        updates=settings.updates,
        warm_up=settings.warm_up,
        recipe="reference",
        about="the same sentences in the same batches; 'by length': in batches of similar length",
    )


def contenders(settings: Settings) -> list[Contender]:
    """Stock fairseq with and without what makes it fast; ours; Transformers in batches of similar length.

    Stock fairseq cannot read the encoders of Transformers.
    """
    stock = functools.partial(fairseq, settings, "stock")
    own = tools.ours(lambda precision: fairseq(settings, "ours", {"--precision": precision}), settings)
    trainer = functools.partial(transformers, settings)
    others = tools.of_tool("Transformers, {}, by length", trainer, settings)
    return [*others, *own] if settings.encoder else [*fairseq_commands.stock(stock, settings), *own, *others]


def first_losses(settings: Settings) -> dict[str, float]:
    """The difference between the first losses of Transformers and ours, in each precision."""
    short = replace(settings, updates=CHECKED, warm_up=1)
    commands: dict[str, tools.Command] = {
        "Transformers": lambda precision: transformers(short, precision, dropout=False),
        "ours": lambda precision: fairseq(short, "ours", NO_DROPOUT | {"--precision": precision}),
    }
    units = {"Transformers": 1.0, "ours": math.log(2)}  # fairseq logs bits
    return tools.agreement(commands, settings, lambda tool, record: [[record["losses"][0] * units[tool]]])


def fairseq(settings: Settings, who: str, more: Mapping[str, str]) -> tuple[str, ...]:
    """The updates of fairseq-train, as `fairseq_commands.command`."""
    return timed(fairseq_train, settings.warm_up, *fairseq_words(settings, who, more))


def fairseq_words(settings: Settings, who: str, more: Mapping[str, str]) -> list[str]:
    """Data and flags of fairseq-train."""
    changes = fairseq_commands.NOTHING_BUT_UPDATES | {
        "--num-classes": str(fairseq_commands.classes(settings)),
        "--batch-size": str(settings.batch_size),
        "--max-update": str(settings.updates),
        "--max-epoch": str(settings.updates),  # small data: as many as the updates need
        "--save-dir": str(settings.scratch / "finetune"),
    }
    return fairseq_commands.command(who, settings, "reference", settings.data, {**changes, **more})


def transformers(settings: Settings, precision: str, *, dropout: bool = True) -> tuple[str, ...]:
    """The updates of the Trainer."""
    options = {"batch_size": settings.batch_size, "updates": settings.updates, "warm_up": settings.warm_up}
    options |= {"bf16": precision == "bf16", "dropout": dropout}
    return timed(transformers_train, peer(settings), json.dumps(options))


def peer(settings: Settings) -> Path:
    """A folder with sentences and a model of Transformers with the initial weights of ours; cached."""
    folder = settings.scratch / "transformers"
    if not folder.exists():
        say("preparing: the same model for Transformers")
        command = timed(write_peer, folder, *fairseq_words(settings, "ours", {}))
        execute(Contender("peer", command), settings, "peer")
    return folder


def write_peer(folder: str, *words: str) -> dict[str, Any]:
    """Write what fairseq-train reads, data and flags in `words`, for a process without this project."""
    from roberta_small.experiments.methods.frozen.fit import Encoder
    from roberta_small.experiments.methods.transformers.train_run import initial_model
    from roberta_small.export.transformers.folder import MEAN_CODE

    found = Encoder.of("cpu", "fp32", "", words)
    checkpoint = Path(found.cfg.checkpoint.restore_file)
    start = checkpoint if checkpoint.is_absolute() else None
    initial_model(found.cfg, found.task, start, SEED).save_pretrained(folder)
    shutil.copy(MEAN_CODE, folder)
    for split in ("train", "test"):
        rows, labels = found.rows(split), found.targets(split)
        lengths = [len(row) for row in rows]
        np.savez(Path(folder, split), ids=np.concatenate(rows), lengths=lengths, labels=labels)
    return {}


def transformers_train(model: str, words: str) -> dict[str, Any]:
    """The Transformers Trainer with a clock at each update of a model of `write_peer`.

    The model and the recipe (AdamW, linear schedule, dropout 0.1, no clipping) are those of fairseq with
    recipes/reference.txt, and the sentences those of fairseq's batches.
    """
    import torch
    from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

    options, clock = json.loads(words), Clock()

    class TimedTrainer(Trainer):
        def training_step(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Tensor:
            clock.start(inputs["attention_mask"].sum())
            loss = super().training_step(model, inputs, *args, **kwargs)
            clock.losses.append(loss)
            return loss

        def compute_loss(self, model: Any, *args: Any, **kwargs: Any) -> Any:
            return super().compute_loss(model.train(options["dropout"]), *args, **kwargs)

    reviews = read_reviews(model, "train")
    sizes = np.array([len(review["input_ids"]) for review in reviews])
    order = batches_by_length(sizes, options["batch_size"], options["updates"], options["warm_up"])
    torch.manual_seed(SEED)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=options["updates"],
            per_device_train_batch_size=options["batch_size"],
            train_sampling_strategy="sequential",
            learning_rate=1e-5,
            lr_scheduler_type="linear",
            warmup_steps=67,
            adam_beta2=0.98,
            weight_decay=0.01,
            max_grad_norm=0.0,
            optim="adamw_torch_fused",
            bf16=options["bf16"],
            use_cpu=not torch.cuda.is_available(),
            logging_steps=25,
            logging_nan_inf_filter=False,  # waits for a GPU in each update
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=SEED,
        )
        TimedTrainer(
            model=AutoModelForSequenceClassification.from_pretrained(model, trust_remote_code=True),
            args=arguments,
            train_dataset=[reviews[index] for batch in order for index in batch],
            data_collator=pad,
        ).train()
    return clock.result(options["warm_up"])


def read_reviews(folder: str | Path, split: str) -> list[Review]:
    """The sentences of a split that `write_peer` wrote: with <s>, and truncated as in fairseq."""
    import torch

    found = np.load(Path(folder, f"{split}.npz"))
    rows = np.split(found["ids"], np.cumsum(found["lengths"])[:-1])
    labels = found["labels"].tolist()
    return [{"input_ids": torch.from_numpy(ids), "labels": k} for ids, k in zip(rows, labels, strict=True)]


def pad(reviews: Sequence[Review], padding: int = PAD) -> dict[str, Tensor]:
    """A batch: (B, L) ids padded on the right, (B, L) attention mask, and (B,) labels if there are any."""
    import torch

    rows = [review["input_ids"] for review in reviews]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=padding)
    batch = {"input_ids": ids, "attention_mask": (ids != padding).long()}
    labels = [review["labels"] for review in reviews if "labels" in review]
    return batch | ({"labels": torch.tensor(labels)} if labels else {})


def fairseq_batches(sentences: int, *, batch_size: int, seed: int, updates: int) -> list[list[int]]:
    """Sentences of each of the first updates of a task that shuffles them, such as sentence_prediction.

    fairseq permutes the sentences (`SentencePredictionTask.load_dataset`), cuts batches and permutes
    these with the seed plus the epoch (`EpochBatchIterator._get_iterator_for_epoch`). A last batch that is
    not full is cut to a multiple of 8 (`batch_by_size`).
    """
    order = np.argsort(np.random.RandomState(seed).permutation(sentences)).tolist()
    batches = [order[start : start + batch_size] for start in range(0, sentences, batch_size)]
    if (kept := len(batches[-1]) // MULTIPLE * MULTIPLE) < len(batches[-1]) < batch_size:
        batches[-1:] = [batches[-1][:kept]] if kept else []
    epochs: list[list[int]] = []
    while len(epochs) < updates:
        shuffled = list(batches)
        np.random.RandomState(seed + 1 + len(epochs) // len(batches)).shuffle(shuffled)
        epochs += shuffled
    return epochs[:updates]


def batches_by_length(
    sizes: NDArray[np.integer], batch_size: int, updates: int, warm_up: int
) -> list[list[int]]:
    """fairseq's batches, with those that are timed (see `Clock.result`) regrouped by length, in random order.

    Transformers' own grouping does the same to fifty batches at a time, and trains from long to short:
    other sentences would be timed.
    """
    batches = fairseq_batches(len(sizes), batch_size=batch_size, seed=SEED, updates=updates)
    timed_batches = batches[warm_up:-1]
    order = sorted((index for batch in timed_batches for index in batch), key=lambda index: sizes[index])
    grouped = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    np.random.RandomState(SEED).shuffle(grouped)
    return [*batches[:warm_up], *grouped, batches[-1]]
