"""Duplicates, label conflicts, class balance and text lengths of a data set.

Duplicates   within and across splits, under two notions of "the same text":
             exact       equal after white space at both ends is removed
             normalized  equal as sequences of case-folded words (punctuation and spacing ignored)
Conflicts    exact duplicates that carry different labels
Labels       how many lines of each class
Lengths      tokens of an example with <s> and </s>, as the model reads it: mean, median, 95th percentile,
             maximum, fraction beyond `max_positions`, unknown rate

Line indices count from 0. All texts are held in memory.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from roberta_small.common.data_folder import keys_digest, keys_of
from roberta_small.common.files import sha256
from roberta_small.preprocess.binarize import Split
from roberta_small.preprocess.dictionary import UNK
from roberta_small.preprocess.labels import INVISIBLE
from roberta_small.preprocess.tokenization.encoder import TextEncoder, map_text

if TYPE_CHECKING:
    from roberta_small.preprocess.examples import Row

WORD = re.compile(r"\w+")


def normalized(text: str) -> str:
    """The case-folded words of the text, one space between them; the text if it has none."""
    visible = unicodedata.normalize("NFKC", INVISIBLE.sub("", text))
    return " ".join(WORD.findall(visible.casefold())) or text


def duplicates(keys: Mapping[str, Sequence[str]]) -> dict[str, dict[str, list[int]]]:
    """For each split, the 0-based lines that repeat a text: under its own name an earlier line of itself,
    under another split's name any line of that split. `keys` are equal for texts that are the same.
    """
    known = {name: set(values) for name, values in keys.items()}
    found: dict[str, dict[str, list[int]]] = {}
    for name, values in keys.items():
        found[name] = {
            other: [index for index, value in enumerate(values) if value in known[other]]
            for other in keys
            if other != name
        }
        first = {value: index for index, value in reversed(list(enumerate(values)))}
        found[name][name] = [index for index, value in enumerate(values) if first[value] != index]
    return found


def conflicts(splits: Mapping[str, Sequence[Row]]) -> list[dict[str, dict[str, str]]]:
    """Texts (exact duplicates) with more than one label, each as {split: {line index: label}}."""
    known: dict[str, str] = {}
    texts = {
        text
        for row in chain(*splits.values())
        if known.setdefault(text := row.text.strip(), row.label) != row.label
    }
    groups: dict[str, dict[str, dict[str, str]]] = {}
    for name, rows in splits.items() if texts else ():
        for index, row in enumerate(rows):
            if (text := row.text.strip()) in texts:
                groups.setdefault(text, {}).setdefault(name, {})[str(index)] = row.label
    return list(groups.values())


def token_statistics(
    encoder: TextEncoder, paths: Sequence[str], *, max_positions: int, workers: int
) -> dict[str, Any]:
    """Tokens of one split: "tokens" as fairseq stores them (one </s> per text), unknown ones, and lengths.

    An example's length adds <s>; the percentile interpolates linearly.
    """
    tokens, unknown, lengths = 0, 0, np.ones(1, dtype=np.int64)
    for path in paths:
        sizes = []
        progress = f"audit {os.path.basename(path)}"
        for encoded in map_text(encoder, [path], workers=workers, progress=progress):
            sizes.append(encoded.sizes)
            tokens += len(encoded.ids)
            unknown += int(np.count_nonzero(encoded.ids == UNK))
        lengths = lengths + np.concatenate(sizes)
    truncated = int((lengths > max_positions).sum())
    return {
        "tokens": tokens,
        "unknown": unknown,
        "unknown_rate": round(unknown / tokens, 6),
        "lengths": {
            "mean": round(float(lengths.mean()), 2),
            "median": float(np.median(lengths)),
            "p95": round(float(np.percentile(lengths, 95)), 1),
            "max": int(lengths.max()),
            "max_positions": max_positions,
            "truncated": truncated,
            "truncated_share": round(truncated / len(lengths), 6),
        },
    }


def audit(
    rows: Mapping[str, Sequence[Row]],
    files: Sequence[Split],
    encoder: TextEncoder,
    folder: Path,
    *,
    max_positions: int = 256,
    workers: int = 1,
) -> dict[str, Any]:
    """The whole report, ready for JSON; paths of files are relative to `folder`.

    `rows` are the examples by split, and `files` theirs.
    """
    splits = {}
    for split in files:
        part, texts = rows[split.name], [path for paths in split.texts.values() for path in paths]
        paths = [*texts, *([split.label] if split.label else [])]
        splits[split.name] = {
            "sha256": {Path(path).relative_to(folder).as_posix(): sha256(path) for path in paths},
            "lines": len(part),
            "texts": keys_digest(keys_of([[row.text for row in part]])),
            "labels": dict(sorted(Counter(row.label for row in part).items())),
            **token_statistics(encoder, texts, max_positions=max_positions, workers=workers),
        }
    exact = {name: [row.text.strip() for row in part] for name, part in rows.items()}
    normal = {name: [row.key for row in part] for name, part in rows.items()}
    found = {"exact": duplicates(exact), "normalized": duplicates(normal)}
    return {"splits": splits, "duplicates": found, "conflicts": conflicts(rows)}
