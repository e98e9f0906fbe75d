"""`roberta-small export transformers`: a fairseq checkpoint to a from_pretrained folder with a model card.

The folder is written only if its token ids and logits equal those of fairseq (verify.py).
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from roberta_small.common import manifest, predictions
from roberta_small.common.errors import UserError
from roberta_small.common.families import SECOND
from roberta_small.common.files import atomic_folder, atomic_write
from roberta_small.common.label_kinds import SINGLE_LABEL, Scaling
from roberta_small.common.metrics import label, metrics_of, number, scored
from roberta_small.common.run import THRESHOLDS, write_thresholds
from roberta_small.eval.model import Model, open_model
from roberta_small.eval.network import HEADS, Checkpoint
from roberta_small.export.transformers.folder import (
    GENERAL_CLASS,
    MEAN_CODE,
    STANDARD,
    TextFormat,
    load_pretrained,
    write_carried,
    write_tokenizer,
    write_transformers_tokenizer,
)
from roberta_small.export.transformers.networks import Source, converted, source_of, special_ids
from roberta_small.export.transformers.verify import TOLERANCE, Counterpart, Verification, verify
from roberta_small.preprocess.dictionary import BOS, EOS, MASK, NO_SEPARATOR
from roberta_small.preprocess.tokenization.transformers_encoder import TransformersEncoder, has_divided_names

PROOF = "proof.json"
"""File with the result of the comparison and the SHA-256 of the compared files."""
TASKS = {True: "text-classification", False: "fill-mask"}
"""Whether the model is a classifier -> its pipeline in Transformers."""


def convert(source: str | os.PathLike[str], output: Path, **options: Any) -> Verification:
    """Write the run or checkpoint `source` to the folder `output`; `options` as for `open_model`.

    Raises `UserError` and writes nothing if `output` exists and is not an empty folder, if a file is missing
    or does not belong to the checkpoint, if Transformers does not support the model or its input, and if ids
    or logits differ from fairseq's.
    """
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise UserError(f"{output}: already exists; choose another name or delete it")
    origin = open_model(source, **options)
    content = in_units_of_the_labels(source_of(origin.checkpoint), origin.checkpoint)
    tokenizer, text_format = origin.tokenizer.model, text_format_of(origin)
    with atomic_folder(output) as folder:
        labels, encoder = None if content.head is None else origin.labels, origin.encoder
        order = encoder.order if isinstance(encoder, TransformersEncoder) else None
        if labels is not None:
            labels = replace(labels, scaling=Scaling())
            if labels.thresholds:
                write_thresholds(folder, dict(zip(labels.classes, labels.thresholds, strict=True)))
        model = converted(content, labels, special_ids(origin.input_format), order)
        model.save_pretrained(folder)
        if content.needs_own_class:
            shutil.copyfile(MEAN_CODE, folder / MEAN_CODE.name)
        if isinstance(encoder, TransformersEncoder):
            write_transformers_tokenizer(folder, encoder, origin.dictionary, text_format)
        elif tokenizer is not None:
            write_tokenizer(folder, tokenizer, origin.dictionary, text_format)
        write_carried(folder, origin, content)
        again = load_pretrained(folder)
        other = Counterpart(again.model, again.family, order, token_types=SECOND in content.weights)
        verification = verify(origin, content, folder, other)
        parameters = sum(weight.numel() for weight in model.parameters())
        proof = {"sha256": origin.digests(), **asdict(verification), "tolerance": TOLERANCE}
        atomic_write(folder / PROOF, json.dumps(proof, indent=2) + "\n")
        card = model_card(origin, content, verification, parameters, output.name)
        atomic_write(folder / "README.md", card)
    return verification


def in_units_of_the_labels(source: Source, checkpoint: Checkpoint) -> Source:
    """The network of a regression whose last layer computes what is predicted, not standardized values."""
    if source.head is None or checkpoint.kind.has_classes:
        return source
    scaling, names = checkpoint.scaling, [f"{HEADS}{source.head}.out_proj.{it}" for it in ("weight", "bias")]
    weight, bias = (source.weights[name] * scaling.scale for name in names)
    scaled = dict(zip(names, (weight, bias + scaling.mean), strict=True))
    return replace(source, weights=source.weights | scaled)


def text_format_of(origin: Model) -> TextFormat:
    """How the tokenizer of a model reads text.

    Raises `UserError` for a classifier whose inputs are not `<s> sentence </s>` or
    `<s> sentence </s> </s> sentence </s>`, and for normalized apostrophes with a Transformers tokenizer.
    """
    path = origin.run.checkpoint
    if origin.tokenizer.model is None and origin.normalize_apostrophes:
        raise UserError(
            f"{path}: trained on text with normalized apostrophes, which a Transformers tokenizer "
            "cannot normalize; prepare the data without --normalize-apostrophes to export the model"
        )
    encoder, used = origin.encoder, origin.input_format
    own: tuple[int, int | None] = (BOS, EOS)
    if isinstance(encoder, TransformersEncoder):
        own = encoder.init_token, encoder.separator_token if encoder.separates_pairs else None
    if used.init_token != own[0]:
        raise UserError(
            f"{path}: trained with --init-token {used.init_token}; the tokenizer in Transformers starts "
            f"with <s>, so only checkpoints trained with --init-token {own[0]} can be converted"
        )
    if used.separator_token != own[1]:
        why = ""
        if origin.pairs:
            why = "on pairs; the tokenizer in Transformers separates them by </s>"
        elif used.keep_eos and used.separator_token is not None:
            why = "with --keep-eos; the tokenizer in Transformers ends texts with </s>"
        if why:
            raise UserError(
                f"{path}: trained with --separator-token {used.separator_token} {why}, so only "
                f"--separator-token {NO_SEPARATOR if own[1] is None else own[1]} can be converted"
            )
    return TextFormat(
        longest=used.max_positions,
        keep_eos=used.keep_eos,
        normalize_apostrophes=origin.normalize_apostrophes,
        plain_text=origin.checkpoint.is_classifier,
    )


def model_card(origin: Model, source: Source, verification: Verification, parameters: int, name: str) -> str:
    """The model card, README.md of the folder `name`: origin, quality and limits."""
    task = TASKS[origin.checkpoint.is_classifier]
    parts = [
        f"---\nlibrary_name: transformers\npipeline_tag: {task}\n"
        f"tags:\n- {source.family.name}\n- fairseq\n---\n",
        f"# {name}\n",
        _what(origin, source, parameters),
        f"```python\n{_usage(origin, task, name, own_code=source.needs_own_class)}```\n",
        "## Origin\n",
        "".join(f"- {line}\n" for line in _provenance(origin, source)),
        "## Quality\n",
        "".join(f"- {line}\n" for line in _quality(origin)),
        "## Conversion\n",
        "Compared with fairseq's own network and with the token ids of training:\n",
        "".join(f"- {line}\n" for line in str(verification).splitlines()),
        "## Limits\n",
        "".join(f"- {line}\n" for line in _limits(origin, source)),
    ]
    return "\n".join(parts)


def _what(origin: Model, source: Source, parameters: int) -> str:
    if not origin.checkpoint.is_classifier:
        kind = "A masked language model"
    else:
        unit = "pairs of sentences" if origin.pairs else "sentences"
        kind = f"A classifier of {unit} with {len(origin.classes)} classes ({', '.join(origin.classes)})"
        if not origin.labels.kind.has_classes:
            kind = f"A regression, which predicts a number for {unit}"
        elif not origin.labels.kind.exclusive:
            kind += ", any number of them for a text"
    return (
        f"{kind}. Its encoder is Transformers' `{source.family.classes[2]}`, and it has {parameters:,} "
        "parameters. It was trained with fairseq and converted to Transformers, with the same logits.\n"
    )


def _usage(origin: Model, task: str, name: str, *, own_code: bool) -> str:
    longest = origin.input_format.max_positions
    own_code = own_code or origin.tokenizer.model is not None
    trust = ", trust_remote_code=True" if own_code else ""
    if not origin.checkpoint.is_classifier:
        mask = MASK
        if isinstance(origin.encoder, TransformersEncoder):
            mask = origin.encoder.tokenizer.mask_token
        return (
            f'from transformers import pipeline\n\nfill = pipeline("{task}", model="{name}"{trust})\n'
            f'fill("Un {mask} captivant.")\n'
        )
    call = (
        'classify({"text": "First.", "text_pair": "Second."}' if origin.pairs else 'classify(["A sentence."]'
    )
    return (
        f'from transformers import pipeline\n\nclassify = pipeline("{task}", model="{name}"{trust})\n'
        f"{call}, truncation=True)  # truncates to {longest} tokens\n"
    )


def _provenance(origin: Model, source: Source) -> list[str]:
    digests = origin.digests()
    lines = [f"fairseq checkpoint `{origin.run.checkpoint.name}`, SHA-256 `{digests['checkpoint']}`"]
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
    lines.append(f"dictionary: {source.vocabulary:,} entries, SHA-256 `{digests['dictionary']}`")
    if isinstance(origin.encoder, TransformersEncoder):
        found = f"tokenizer: Transformers' `{type(origin.encoder.tokenizer).__name__}`, with the same ids"
        if origin.checkpoint.is_classifier:  # what `write_transformers_tokenizer` changed
            how = "`split_special_tokens`"
            if has_divided_names(origin.encoder.tokenizer):
                how = (
                    f"an additional pre-tokenizer in tokenizer.json, which the class `{GENERAL_CLASS}` loads"
                )
            found += f"; names of special tokens in a text are read as text ({how})"
        lines.append(found)
    else:
        lines.append(f"SentencePiece model: SHA-256 `{digests['sentencepiece_model']}`")
    return lines


def _quality(origin: Model) -> list[str]:
    """The accuracy of prediction files, for other kinds of labels all metrics; otherwise what was logged."""
    lines = []
    for split in ("valid", "test"):
        path = origin.run.folder / predictions.file_name(split)
        every = predictions.read(path) if path.is_file() else []
        found = [one for one in every if one.record()["gold"] is not None]
        if not found:
            continue
        arrays = predictions.to_arrays(found)
        test_set = scored(arrays.labels, arrays.targets, arrays.outputs)
        ones = np.ones((1, test_set.count))
        metrics = metrics_of(test_set.kind)
        names = ["accuracy"] if test_set.kind == SINGLE_LABEL else list(metrics)
        values = {name: float(metrics[name].measure(test_set, ones)[0]) for name in names}
        listed = ", ".join(f"{label(name)} {number(value, name)}" for name, value in values.items())
        if test_set.kind == SINGLE_LABEL:
            lines.append(f"accuracy on {split}: {values['accuracy']:.2f} % of {len(found):,} sentences")
        else:
            lines.append(f"{split}, {len(found):,} sentences: {listed}")
    lines = lines or _logged(origin.run.folder)
    return lines or ["not known: the run has neither prediction files nor logs with accuracies"]


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


def _limits(origin: Model, source: Source) -> list[str]:
    longest = origin.input_format.max_positions
    labels = origin.labels if origin.checkpoint.is_classifier else None
    lines = [
        f"Inputs have at most {longest} tokens. `truncation=True` truncates longer texts; without it they "
        "are an error."
    ]
    if labels is not None and not labels.kind.has_classes:
        lines.append("The output is the predicted number itself, in the unit of the labels.")
    if labels is not None and labels.thresholds:
        lines.append(
            f"`{THRESHOLDS}` has the threshold of each class, chosen on the validation set: a class is "
            "predicted if its probability is at least as high."
        )
    if source.needs_own_class:
        lines.append(
            f"The model needs `trust_remote_code=True`: the class in `{MEAN_CODE.name}` has a classification "
            "head that no class of Transformers has."
        )
    same = origin.input_format.keep_eos and not origin.pairs
    end = "has the same ids" if same else "truncates long texts differently than training did"
    if origin.tokenizer.model is None:
        lines.append(f"The tokenizer {end}.")
    else:
        lines.append(f"A token that is not among the {source.vocabulary:,} entries of `dict.txt` is `<unk>`.")
    if origin.normalize_apostrophes:
        lines.append("The tokenizer needs `trust_remote_code=True`: it replaces every apostrophe by `'`.")
    elif origin.tokenizer.model is not None:
        lines.append(
            "With `trust_remote_code=True` the tokenizer is the class in `tokenization_pieces.py`, whose ids "
            f"are those of training for every text. Otherwise it is Transformers' `{STANDARD}`, which {end}."
        )
    if origin.tokenizer.model is not None:
        lines.append("The tokenizer has no offsets (`return_offsets_mapping`): it is written in Python.")
    lines.append("Its quality on other kinds of text is unknown: evaluate it on your own texts.")
    return lines
