"""A tiny trained run with everything that belongs to it, made by the project's own commands."""

import json
import random
from dataclasses import dataclass
from pathlib import Path

import sentencepiece

from roberta_small.common import manifest
from roberta_small.common.label_kinds import KINDS, MULTI_LABEL
from roberta_small.common.run import write_thresholds
from roberta_small.preprocess.__main__ import main as preprocess
from roberta_small.preprocess.binarize import Split
from tests.support.binarized_files import binarize
from tests.support.training import FAST, OURS, SIZES, STEPS, build_trainer

TEXT = """
un une le la les livre roman histoire auteur personnage lecture page chapitre style ennui plaisir
déçu ravi long court drôle triste original passionnant j'ai lu c'est très peu assez
"""
WORDS = TEXT.split()
GOOD, BAD = "magnifique", "banal"


def sentences(count, seed):
    """Texts and labels: the label decides one word."""
    rng = random.Random(seed)
    rows = []
    for i in range(count):
        words = [rng.choice(WORDS) for _ in range(rng.randrange(3, 30))]
        words.insert(rng.randrange(len(words)), GOOD if i % 2 else BAD)
        rows.append((" ".join(words), "pos" if i % 2 else "neg"))
    return rows


def write_texts(folder, splits, pairs=False):
    for seed, (split, count) in enumerate(splits.items()):
        rows = sentences(count, seed)
        (folder / f"{split}.input0").write_text("".join(f"{text}\n" for text, _ in rows), encoding="utf-8")
        (folder / f"{split}.label").write_text("".join(f"{label}\n" for _, label in rows))
        if pairs:
            others = sentences(count, seed + 100)
            (folder / f"{split}.input1").write_text("".join(f"{text}\n" for text, _ in others), "utf-8")


@dataclass
class Trained:
    root: Path
    data: Path
    trainer: object
    run: Path

    @property
    def texts(self):
        return (self.root / "test.input0").read_text(encoding="utf-8").splitlines()


def make_data(root, pairs=False, normalize_apostrophes=False):
    root.mkdir(exist_ok=True)
    write_texts(root, {"train": 40, "valid": 12, "test": 31}, pairs)
    sentencepiece.SentencePieceTrainer.train(
        input=str(root / "train.input0"), model_prefix=str(root / "spm"), vocab_size=70, minloglevel=2,
        hard_vocab_limit=False,
    )  # fmt: skip
    model = sentencepiece.SentencePieceProcessor(model_file=str(root / "spm.model"))
    pieces = [model.id_to_piece(i) for i in range(3, len(model))]
    (root / "dict.txt").write_text("".join(f"{piece} 1\n" for piece in pieces), encoding="utf-8")
    inputs = ("input0", "input1") if pairs else ("input0",)
    splits = [
        Split(name, {part: [str(root / f"{name}.{part}")] for part in inputs}, str(root / f"{name}.label"))
        for name in ("train", "valid", "test")
    ]
    binarize(
        splits,
        root / "data",
        sentencepiece_model=str(root / "spm.model"),
        dictionary=str(root / "dict.txt"),
        apostrophes=normalize_apostrophes,
    )
    return root / "data"


def make_run(data, run, *flags, seed=1, status="finished", updates=0):
    """Train a little, save as fairseq does, and write the manifest of the sweep."""
    input_flags = ["--init-token", "0", "--separator-token", "2", "--max-positions", "32"]
    if "--shorten-method" not in flags:
        input_flags += ["--shorten-method", "truncate"]
    arguments = [data, *OURS, *input_flags, *STEPS, *SIZES, *FAST, "--seed", str(seed), *flags]
    _, trainer = build_trainer(arguments)
    trainer.begin_epoch(1)
    for epoch in range(updates):
        for sample in trainer.get_train_iterator(epoch=epoch + 1).next_epoch_itr():
            trainer.train_step([sample])
    run.mkdir(parents=True, exist_ok=True)
    iterator = trainer.get_train_iterator(epoch=1)
    iterator.next_epoch_itr()
    trainer.consolidate_optimizer()
    state = {"train_iterator": iterator.state_dict(), **trainer.task.get_checkpoint_dict()}
    trainer.save_checkpoint(str(run / "checkpoint_best.pt"), state)
    write_manifest(run, data, seed, status)
    return trainer


def make_causal_run(data, run, arch, *flags):
    """A left-to-right classifier; `flags` may choose its pooling."""
    return make_run(data, run, "--arch", arch, "--init-token", "2", *flags, updates=2)


def write_manifest(run, data, seed=1, status="finished", init="random"):
    content = {"schema": 1, "status": status, "arm": "fairseq", "init": init, "seed": seed, "recipe": "tiny"}
    manifest.write(run, content | {"command": [], "data": {"path": str(data), "sha256": {}}})


def make_labelled_data(root, kind, count=60):
    """Data of another kind of labels than one class per text: the folder that `prepare` writes."""
    texts = [text for text, _ in sentences(count, 3)]
    words = {"déçu": "sad", "ravi": "glad, very", "long": "slow"}
    rows = []
    for text in texts:
        found = text.split()
        names = [name for word, name in words.items() if word in found]
        value = 2.5 + found.count(GOOD) - 0.1 * len(found)
        rows.append({"text": text, "label": names if kind == MULTI_LABEL else value})
    root.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (root / "texts.jsonl").write_text(lines, encoding="utf-8")
    (root / "sentences.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(root / "sentences.txt"), model_prefix=str(root / "spm"), vocab_size=70, minloglevel=2,
        hard_vocab_limit=False,
    )  # fmt: skip
    command = ["prepare", str(root / "texts.jsonl"), "--task", KINDS[kind].task, "--out", str(root / "data")]
    assert (
        preprocess([*command, "--valid", "0.2", "--test", "0.2", "--tokenizer", str(root / "spm.model")]) == 0
    )
    return root / "data"


def make_labelled_run(root, kind, *flags, updates=3):
    """(data, run) of a classifier or regression on `make_labelled_data`."""
    data = make_labelled_data(root, kind)
    make_run(data, root / "run", *KINDS[kind].flags, *flags, updates=updates)
    if kind == MULTI_LABEL:
        write_thresholds(root / "run", {"sad": 0.4, "glad, very": 0.45, "slow": 0.62})
    return data, root / "run"
