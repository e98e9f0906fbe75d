"""A tiny RoBERTa on CLS-books with Transformers' own Trainer: `python trainer.py LR SEED`."""

import sys

import sentencepiece
import torch
from transformers import RobertaConfig, RobertaForSequenceClassification, Trainer, TrainingArguments, set_seed

PAD, LONGEST = 1, 62


def read(split: str) -> list[dict]:
    """The examples of a split, cut at 62 tokens."""
    with open(f"cls-books/split/{split}.input0") as texts, open(f"cls-books/split/{split}.label") as labels:
        return [
            {"input_ids": [0, *(i + 4 for i in ids[:LONGEST]), 2], "labels": int(label)}
            for ids, label in zip(tokenizer.encode(texts.read().splitlines()), labels, strict=True)
        ]


def collate(examples: list[dict]) -> dict:
    """A batch, padded to its longest example."""
    longest = max(len(example["input_ids"]) for example in examples)
    ids = [example["input_ids"] + [PAD] * (longest - len(example["input_ids"])) for example in examples]
    ids = torch.tensor(ids)
    labels = torch.tensor([example["labels"] for example in examples])
    return {"input_ids": ids, "attention_mask": ids.ne(PAD).long(), "labels": labels}


learning_rate, seed = sys.argv[1:]
tokenizer = sentencepiece.SentencePieceProcessor(model_file="cls-books/tiny.model")
set_seed(int(seed))
config = RobertaConfig(
    vocab_size=tokenizer.get_piece_size() + 4, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
    num_attention_heads=2, max_position_embeddings=66, hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)  # fmt: skip
arguments = TrainingArguments(
    output_dir=f"transformers/tiny-lr{learning_rate}/seed{seed}", report_to="tensorboard", use_cpu=True,
    learning_rate=float(learning_rate), per_device_train_batch_size=16, num_train_epochs=3, seed=int(seed),
    eval_strategy="epoch", save_strategy="no", logging_steps=25, disable_tqdm=True,
)  # fmt: skip
Trainer(
    RobertaForSequenceClassification(config),
    arguments,
    data_collator=collate,
    train_dataset=read("train"),
    eval_dataset={"valid": read("valid"), "test": read("test")},
    compute_metrics=lambda p: {"accuracy": (p.predictions.argmax(-1) == p.label_ids).mean()},
).train()
