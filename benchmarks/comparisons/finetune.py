"""An update of fine-tuning with the reference recipe: stock fairseq, ours, the Transformers Trainer."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import fairseq_commands
from benchmarks.fairseq_commands import SAME_VARIABLES
from benchmarks.measure import Contender, compare, timed
from benchmarks.settings import Settings
from benchmarks.timed import Clock, fairseq_train
from roberta_small.common.data_folder import read_header, read_sizes

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import RobertaForSequenceClassification

ENGINES = {"ours": "auto", "ours, fp32": "fp32"}
"""Contender -> --precision."""
SEED = 1
BOS, PAD, EOS, FIRST_LABEL = 0, 1, 2, 4
"""Ids of fairseq's dictionaries; labels follow four special symbols."""
MULTIPLE = 8
"""fairseq's --required-batch-size-multiple."""
Review = dict[str, Any]
"""`input_ids` and `labels` of a sentence."""


def run(settings: Settings) -> dict[str, Any]:
    """Seconds of an update, data loading and logging included; no validation, no saving."""
    return compare(
        "finetune",
        f"Fine-tuning {settings.sizes.layers} layers of size {settings.sizes.embed}, an update of "
        f"{settings.batch_size} sentences",
        contenders(settings),
        settings,
        batch_size=settings.batch_size,
        updates=settings.updates,
        warm_up=settings.warm_up,
        recipe="reference",
        about="the same sentences in the same batches; 'by length': in batches of similar length",
    )


def contenders(settings: Settings) -> list[Contender]:
    """Stock fairseq with and without what makes it fast; ours; Transformers in batches of similar length."""
    tuned = fairseq_commands.tuned(settings)
    changes = fairseq_commands.NOTHING_BUT_UPDATES | {
        "--num-classes": str(fairseq_commands.classes(settings)),
        "--batch-size": str(settings.batch_size),
        "--max-update": str(settings.updates),
        "--max-epoch": str(settings.updates),  # small data: as many as the updates need
        "--save-dir": str(settings.scratch / "finetune"),
    }

    def fairseq(who: str, more: Mapping[str, str]) -> tuple[str, ...]:
        words = fairseq_commands.command(who, settings, "reference", settings.data, {**changes, **more})
        return timed(fairseq_train, settings.warm_up, *words)

    def transformers(precision: str) -> tuple[str, ...]:
        return timed(transformers_train, transformers_options(settings, precision))

    found = fairseq_commands.stock(functools.partial(fairseq, "stock"), settings)
    for name, precision in ENGINES.items():
        own = fairseq("ours", {"--precision": precision})
        found.append(Contender(name, own, tuned, ours=True, quick=precision == "auto"))
    peer, bf16 = "Transformers, {}, by length", transformers("bf16")
    return [
        *found,
        Contender(peer.format("fp32"), transformers("fp32")),
        Contender(peer.format("bf16"), bf16),
        Contender(peer.format("bf16") + SAME_VARIABLES, bf16, tuned, quick=True),
    ]


def transformers_options(settings: Settings, precision: str) -> str:
    """Data, sizes and training of `transformers_train` and `classify.transformers_classify`, as JSON."""
    options = vars(settings.sizes) | {
        "data": str(settings.data),
        "precision": precision,
        "vocabulary": fairseq_commands.vocabulary(settings.data),
        "classes": fairseq_commands.classes(settings),
        "max_positions": settings.max_positions,
        "batch_size": settings.batch_size,
        "updates": settings.updates,
        "warm_up": settings.warm_up,
    }
    return json.dumps(options)


def transformers_train(words: str) -> dict[str, Any]:
    """The Transformers Trainer with a clock at each update.

    The model and the recipe (AdamW, linear schedule, dropout 0.1, no clipping) are those of fairseq with
    recipes/reference.txt, and the sentences those of fairseq's batches.
    """
    import torch
    from transformers import Trainer, TrainingArguments

    options, clock = json.loads(words), Clock()

    class TimedTrainer(Trainer):
        def training_step(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Tensor:
            clock.start(inputs["attention_mask"].sum())
            loss = super().training_step(model, inputs, *args, **kwargs)
            clock.losses.append(loss)
            return loss

    reviews = read_reviews(options, "train")
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
            bf16=options["precision"] == "bf16",
            use_cpu=not torch.cuda.is_available(),
            logging_steps=25,
            logging_nan_inf_filter=False,  # waits for a GPU in each update
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=SEED,
        )
        TimedTrainer(
            model=transformers_model(options),
            args=arguments,
            train_dataset=[reviews[index] for batch in order for index in batch],
            data_collator=pad,
        ).train()
    return clock.result(options["warm_up"])


def transformers_model(options: dict[str, Any]) -> RobertaForSequenceClassification:
    """RoBERTa of Transformers with random weights, in fairseq's sizes."""
    from transformers import RobertaConfig, RobertaForSequenceClassification

    config = RobertaConfig(
        vocab_size=options["vocabulary"],
        hidden_size=options["embed"],
        intermediate_size=options["ffn"],
        num_hidden_layers=options["layers"],
        num_attention_heads=options["heads"],
        max_position_embeddings=options["max_positions"] + PAD + 1,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        num_labels=options["classes"],
        bos_token_id=BOS,
        pad_token_id=PAD,
        eos_token_id=EOS,
        attn_implementation="sdpa",
    )
    return RobertaForSequenceClassification(config)


def read_reviews(options: dict[str, Any], split: str) -> list[Review]:
    """The sentences of a split, with <s> prepended, truncated as in fairseq."""
    import torch

    data, longest = Path(options["data"]), options["max_positions"]
    sentences = read_sentences(data / "input0" / split, first=BOS, longest=longest)
    labels = read_sentences(data / "label" / split, first=BOS, longest=2)
    return [
        {"input_ids": torch.from_numpy(ids), "labels": int(label[1]) - FIRST_LABEL}
        for ids, label in zip(sentences, labels, strict=True)
    ]


def pad(reviews: Sequence[Review]) -> dict[str, Tensor]:
    """A batch: (B, L) ids padded on the right, (B, L) attention mask, (B,) labels."""
    import torch

    rows = [review["input_ids"] for review in reviews]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    labels = torch.tensor([review["labels"] for review in reviews])
    return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": labels}


def read_sentences(prefix: Path, *, first: int, longest: int) -> list[NDArray[np.int64]]:
    """Ids of each sentence of PREFIX.bin with `first` prepended, truncated to `longest` as in fairseq."""
    header = read_header(f"{prefix}.idx")
    kind = {8: "<u2", 9: "<u4", 4: "<i4", 5: "<i8"}[header.code]
    tokens = np.fromfile(f"{prefix}.bin", kind).astype(np.int64)
    sentences = np.split(tokens, np.cumsum(read_sizes(f"{prefix}.idx"))[:-1])
    return [np.concatenate([[first], sentence])[:longest] for sentence in sentences]


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
