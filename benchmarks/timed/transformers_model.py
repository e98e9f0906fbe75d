"""RoBERTa of Transformers in fairseq's sizes, and the sentences of a binarized folder for it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import RobertaConfig, RobertaForSequenceClassification

from benchmarks.sentences import read_sentences

BOS, PAD, EOS = 0, 1, 2
FIRST_LABEL = 4  # of fairseq's dictionaries, after four special symbols


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Data and sizes."""
    parser.add_argument("output", help="JSON file to write")
    parser.add_argument("data", type=Path, help="binarized folder with input0/ and label/")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument(
        "--vocabulary", type=int, required=True, help="vocabulary size with special symbols and <mask>"
    )
    parser.add_argument("--classes", type=int, required=True)
    for name in ("layers", "embed", "ffn", "heads", "max-positions"):
        parser.add_argument(f"--{name}", type=int, required=True)


def build(args: argparse.Namespace) -> RobertaForSequenceClassification:
    """Random weights; the parameters, apart from the LM head, are those of `roberta_small`."""
    config = RobertaConfig(
        vocab_size=args.vocabulary,
        hidden_size=args.embed,
        intermediate_size=args.ffn,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads,
        max_position_embeddings=args.max_positions + PAD + 1,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        num_labels=args.classes,
        bos_token_id=BOS,
        pad_token_id=PAD,
        eos_token_id=EOS,
        attn_implementation="sdpa",
    )
    return RobertaForSequenceClassification(config)


def read(args: argparse.Namespace, split: str) -> list[dict[str, Any]]:
    """`input_ids` and `labels` of each sentence, with <s> prepended, truncated as in fairseq."""
    sentences = read_sentences(args.data / "input0" / split, first=BOS, longest=args.max_positions)
    labels = read_sentences(args.data / "label" / split, first=BOS, longest=2)
    return [
        {"input_ids": torch.from_numpy(ids), "labels": int(label[1]) - FIRST_LABEL}
        for ids, label in zip(sentences, labels, strict=True)
    ]


def pad(reviews: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
    """A batch: (B, L) ids padded on the right, (B, L) attention mask, (B,) labels."""
    ids = torch.nn.utils.rnn.pad_sequence(
        [review["input_ids"] for review in reviews], batch_first=True, padding_value=PAD
    )
    labels = torch.tensor([review["labels"] for review in reviews])
    return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": labels}
