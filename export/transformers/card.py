"""The model card, README.md of a from_pretrained folder: what it is, its origin, quality and limits."""

from __future__ import annotations

import logging
from pathlib import Path

from common import manifest, predictions
from common.errors import UserError
from common.files import sha256

from .origin import Origin
from .proof import Proof
from .tokenizer import STANDARD

TASKS = {True: "text-classification", False: "fill-mask"}


def card(origin: Origin, proof: Proof, parameters: int, name: str) -> str:
    """The text; `name` is the folder's, `parameters` counts the weights."""
    classifier = origin.classes is not None
    task = TASKS[classifier]
    parts = [
        f"---\nlibrary_name: transformers\npipeline_tag: {task}\ntags:\n- roberta\n- fairseq\n---\n",
        f"# {name}\n",
        _what(origin, parameters),
        f"```python\n{_usage(origin, task, name)}```\n",
        "## Where it comes from\n",
        "".join(f"- {line}\n" for line in _provenance(origin)),
        "## How good it is\n",
        "".join(f"- {line}\n" for line in _quality(origin)),
        "## The conversion\n",
        "Compared with fairseq's own network and with the ids that training reads:\n",
        "".join(f"- {line}\n" for line in str(proof).splitlines()),
        "## Limits\n",
        "".join(f"- {line}\n" for line in _limits(origin)),
    ]
    return "\n".join(parts)


def _what(origin: Origin, parameters: int) -> str:
    if origin.classes is None:
        kind = "A masked language model"
    else:
        what = "pairs of sentences" if origin.pairs else "sentences"
        kind = f"A classifier of {what} with {len(origin.classes)} classes ({', '.join(origin.classes)})"
    return (
        f"{kind}: a RoBERTa of {parameters:,} parameters, trained with fairseq and converted to "
        "Transformers, weights unchanged.\n"
    )


def _usage(origin: Origin, task: str, name: str) -> str:
    longest = origin.input_format.max_positions
    if origin.classes is None:
        return (
            f'from transformers import pipeline\n\nfill = pipeline("{task}", model="{name}", '
            'trust_remote_code=True)\nfill("Un <mask> captivant.")\n'
        )
    call = (
        'classify({"text": "First.", "text_pair": "Second."}' if origin.pairs else 'classify(["A sentence."]'
    )
    return (
        f'from transformers import pipeline\n\nclassify = pipeline("{task}", model="{name}", '
        f"trust_remote_code=True)\n{call}, truncation=True)  # more than {longest} tokens are cut\n"
    )


def _provenance(origin: Origin) -> list[str]:
    lines = [f"fairseq checkpoint `{origin.run.checkpoint.name}`, SHA-256 `{sha256(origin.run.checkpoint)}`"]
    record = origin.run.manifest
    if record is not None:
        run = f"{record['arm']}/{record['init']}/seed{record['seed']}"
        lines.append(f"run `{run}`, recipe `{record['recipe']}`, {record['status']}")
        if record.get("command"):
            lines.append(f"command `{' '.join(record['command'])}`")
        if record.get("git_commit"):
            changed = ", with changes" if record.get("git_changed") else ""
            lines.append(f"project at git commit `{record['git_commit']}`{changed}")
        if (start := record.get("checkpoint")) is not None:
            lines.append(f"weights it started from: SHA-256 `{start['sha256']}`")
    lines.append(f"dictionary: {origin.source.vocabulary:,} types, SHA-256 `{sha256(origin.dictionary)}`")
    lines.append(f"SentencePiece model: SHA-256 `{sha256(origin.sentencepiece_model)}`")
    return lines


def _quality(origin: Origin) -> list[str]:
    lines = [line for split in ("valid", "test") if (line := _accuracy(origin.run.folder, split)) is not None]
    lines = lines or _logged(origin.run.folder)
    return lines or ["not measured here: the run has neither prediction files nor logs of its accuracy"]


def _accuracy(folder: Path, split: str) -> str | None:
    path = folder / predictions.file_name(split)
    if not path.is_file():
        return None
    correct = [answer.correct for answer in predictions.read(path) if answer.correct is not None]
    if not correct:
        return None
    return f"accuracy on {split}: {100 * sum(correct) / len(correct):.2f} % of {len(correct):,} sentences"


def _logged(folder: Path) -> list[str]:
    """What the trainer logged at the best checkpoint; empty where it logged nothing."""
    from analysis import best_checkpoints, load_runs  # pandas: only when there are logs

    record = manifest.read(folder)
    if record is None or not (folder / "tensorboard").is_dir():
        return []
    logging.getLogger("analysis").setLevel(logging.ERROR)
    try:
        best = best_checkpoints(load_runs(str(folder)))
    except UserError:
        return []
    if len(best) != 1:
        return []
    row = best.iloc[0]
    return [
        f"accuracy on {split}: {row[split]:.2f} %, as the trainer logged it at its best checkpoint on valid"
        for split in ("valid", "test")
        if row[split] == row[split]
    ]


def _limits(origin: Origin) -> list[str]:
    longest = origin.input_format.max_positions
    lines = [
        f"It reads at most {longest} tokens of a text; `truncation=True` cuts the rest off, and without "
        "it longer text is an error.",
        f"A piece of text that is none of the {origin.source.vocabulary:,} types of `dict.txt` is `<unk>`.",
    ]
    if origin.text_format.normalize_apostrophes:
        lines.append("The tokenizer needs `trust_remote_code=True`: it reads every apostrophe as `'`.")
    else:
        same = origin.text_format.keep_eos and not origin.pairs
        end = "does the same" if same else "ends a text that is cut in `</s>`, which training had cut off"
        lines.append(
            "With `trust_remote_code=True` the tokenizer is the class in `tokenization_pieces.py`, whose ids "
            f"are those of training for every text. Without, it is Transformers' `{STANDARD}`, which {end}."
        )
    lines.append("It knows what its training data knew: measure it on your texts before you rely on it.")
    return lines
