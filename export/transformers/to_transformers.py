"""`python -m export transformers`: a fairseq checkpoint to a from_pretrained folder with a model card.

The folder is written only if its token ids and logits equal those of fairseq (verify.py).
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from roberta_small.common import manifest, predictions
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_folder, atomic_write, sha256
from roberta_small.eval.loading.training_files import OptionalPath
from roberta_small.export.transformers.folder import (
    STANDARD,
    load_folder,
    write_carried,
    write_tokenizer,
    write_transformers_tokenizer,
)
from roberta_small.export.transformers.origin import Origin, find_origin
from roberta_small.export.transformers.roberta import converted
from roberta_small.export.transformers.verify import Verification, verify

PROOF = "proof.json"
"""File with the result of the comparison and the SHA-256 of the compared files."""
TASKS = {True: "text-classification", False: "fill-mask"}
"""Whether the model is a classifier -> its pipeline in Transformers."""


def convert(
    source: str | os.PathLike[str],
    output: Path,
    *,
    data: OptionalPath = None,
    dictionary: OptionalPath = None,
    sentencepiece_model: OptionalPath = None,
    normalize_apostrophes: bool = False,
) -> Verification:
    """Write the run or checkpoint `source` to the folder `output`; other arguments as for `find_origin`.

    Raises `UserError` and writes nothing if `output` exists, if `find_origin` or `read_source` fail, and if
    ids or logits differ from fairseq's.
    """
    check_absent(output)
    origin = find_origin(
        source,
        data=data,
        dictionary=dictionary,
        sentencepiece_model=sentencepiece_model,
        normalize_apostrophes=normalize_apostrophes,
    )
    with atomic_folder(output) as folder:
        model = converted(origin.source, origin.classes, origin.special)
        model.save_pretrained(folder)
        if origin.sentencepiece_model is not None:
            write_tokenizer(folder, origin.sentencepiece_model, origin.dictionary, origin.text_format)
        else:
            longest = origin.text_format.longest
            write_transformers_tokenizer(folder, origin.encoder.tokenizer, origin.dictionary, longest)
        write_carried(folder, origin)
        verification = verify(origin, folder, load_folder(folder))
        parameters = sum(weight.numel() for weight in model.parameters())
        files = {"checkpoint": origin.run.checkpoint, "dictionary": origin.dictionary}
        if origin.sentencepiece_model is not None:
            files["sentencepiece_model"] = origin.sentencepiece_model
        digests = {name: sha256(path) for name, path in files.items()}
        content = {"sha256": digests, **verification.as_json()}
        atomic_write(folder / PROOF, json.dumps(content, indent=2) + "\n")
        atomic_write(folder / "README.md", card(origin, verification, parameters, output.name))
    return verification


def check_absent(output: Path) -> None:
    """Raise `UserError` if `output` exists, unless it is an empty folder."""
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise UserError(f"{output}: already exists; choose another name or delete it")


def card(origin: Origin, verification: Verification, parameters: int, name: str) -> str:
    """The model card, README.md of the folder `name`: origin, quality and limits."""
    classifier = origin.classes is not None
    task = TASKS[classifier]
    parts = [
        f"---\nlibrary_name: transformers\npipeline_tag: {task}\ntags:\n- roberta\n- fairseq\n---\n",
        f"# {name}\n",
        _what(origin, parameters),
        f"```python\n{_usage(origin, task, name)}```\n",
        "## Origin\n",
        "".join(f"- {line}\n" for line in _provenance(origin)),
        "## Quality\n",
        "".join(f"- {line}\n" for line in _quality(origin)),
        "## Conversion\n",
        "Compared with fairseq's own network and with the token ids of training:\n",
        "".join(f"- {line}\n" for line in str(verification).splitlines()),
        "## Limits\n",
        "".join(f"- {line}\n" for line in _limits(origin)),
    ]
    return "\n".join(parts)


def _what(origin: Origin, parameters: int) -> str:
    if origin.classes is None:
        kind = "A masked language model"
    else:
        unit = "pairs of sentences" if origin.pairs else "sentences"
        kind = f"A classifier of {unit} with {len(origin.classes)} classes ({', '.join(origin.classes)})"
    return (
        f"{kind}: a RoBERTa of {parameters:,} parameters, trained with fairseq and converted to "
        "Transformers, weights unchanged.\n"
    )


def _usage(origin: Origin, task: str, name: str) -> str:
    longest = origin.input_format.max_positions
    trust = "" if origin.sentencepiece_model is None else ", trust_remote_code=True"
    if origin.classes is None:
        return (
            f'from transformers import pipeline\n\nfill = pipeline("{task}", model="{name}"{trust})\n'
            'fill("Un <mask> captivant.")\n'
        )
    call = (
        'classify({"text": "First.", "text_pair": "Second."}' if origin.pairs else 'classify(["A sentence."]'
    )
    return (
        f'from transformers import pipeline\n\nclassify = pipeline("{task}", model="{name}"{trust})\n'
        f"{call}, truncation=True)  # truncates to {longest} tokens\n"
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
            lines.append(f"initial weights: SHA-256 `{start['sha256']}`")
    lines.append(f"dictionary: {origin.source.vocabulary:,} entries, SHA-256 `{sha256(origin.dictionary)}`")
    if origin.sentencepiece_model is not None:
        lines.append(f"SentencePiece model: SHA-256 `{sha256(origin.sentencepiece_model)}`")
    else:
        lines.append(f"tokenizer: Transformers' `{type(origin.encoder.tokenizer).__name__}`, unchanged")
    return lines


def _quality(origin: Origin) -> list[str]:
    lines = [line for split in ("valid", "test") if (line := _accuracy(origin.run.folder, split)) is not None]
    lines = lines or _logged(origin.run.folder)
    return lines or ["not known: the run has neither prediction files nor logs with accuracies"]


def _accuracy(folder: Path, split: str) -> str | None:
    path = folder / predictions.file_name(split)
    if not path.is_file():
        return None
    found = predictions.read(path)
    correct = [prediction.correct for prediction in found if prediction.correct is not None]
    if not correct:
        return None
    return f"accuracy on {split}: {100 * sum(correct) / len(correct):.2f} % of {len(correct):,} sentences"


def _logged(folder: Path) -> list[str]:
    """Accuracies that the trainer logged at the best checkpoint; empty without logs."""
    from roberta_small.analysis import best_checkpoints, load_runs  # pandas: only when there are logs

    record = manifest.read(folder)
    if record is None or not (folder / "tensorboard").is_dir():
        return []
    logging.getLogger("roberta_small.analysis").setLevel(logging.ERROR)
    try:
        best = best_checkpoints(load_runs(str(folder)), reported="test")
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
        f"Inputs have at most {longest} tokens. `truncation=True` truncates longer texts; without it they "
        "are an error.",
    ]
    same = origin.text_format.keep_eos and not origin.pairs
    end = "has the same ids" if same else "truncates long texts differently than training did"
    if origin.sentencepiece_model is None:
        lines.append(f"The tokenizer {end}.")
    else:
        lines.append(
            f"A token that is not among the {origin.source.vocabulary:,} entries of `dict.txt` is `<unk>`."
        )
    if origin.text_format.normalize_apostrophes:
        lines.append("The tokenizer needs `trust_remote_code=True`: it replaces every apostrophe by `'`.")
    elif origin.sentencepiece_model is not None:
        lines.append(
            "With `trust_remote_code=True` the tokenizer is the class in `tokenization_pieces.py`, whose ids "
            f"are those of training for every text. Otherwise it is Transformers' `{STANDARD}`, which {end}."
        )
    if origin.sentencepiece_model is not None:
        lines.append("The tokenizer has no offsets (`return_offsets_mapping`): it is written in Python.")
    lines.append("Its quality on other kinds of text is unknown: evaluate it on your own texts.")
    return lines
