"""Duplicates, label conflicts, class balance and text lengths of a data set.

Duplicates   within and across splits, under two notions of "the same text":
             exact       equal after white space at both ends is removed
             normalized  equal as sequences of case-folded words (punctuation and spacing ignored)
Conflicts    exact duplicates that carry different labels
Labels       how many lines of each class
Lengths      tokens of an example with <s> and </s>, as the model reads it; with --sentencepiece-model
             and --dict: mean, median, 95th percentile, maximum, fraction beyond --max-positions, unknown rate

Line indices in the JSON count from 0. A table goes to standard output. All texts are held in memory.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_small.common.cli import positive
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_write, sha256
from roberta_small.common.tables import markdown
from roberta_small.preprocess.dictionary import UNK
from roberta_small.preprocess.labels import check_line_counts, read_labels
from roberta_small.preprocess.options import add_reading, add_suffixes, input_suffixes
from roberta_small.preprocess.readers.lines import read_text_lines
from roberta_small.preprocess.tokenization.encoder import Encoder, TextEncoder, map_text

EXAMPLES = """examples:
  roberta-small audit --trainpref split/train --validpref split/valid --testpref split/test \\
      --sentencepiece-model sentencepiece.bpe.model --dict dict.txt --out audit.json
  roberta-small audit --trainpref cls-books/train --testpref cls-books/test --inputs review
"""
MANY_LABELS = 30
"""Maximum number of labels that the table lists; the JSON contains all."""
EXTREMES = 10
"""Number of the most and of the least frequent of more labels that it lists."""
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Examples:
    """One split; a sentence pair is one text, its parts joined by a tab."""

    text_paths: list[str]
    label_path: str
    texts: list[str]
    labels: list[str]


def exact(text: str) -> str:
    """The text without white space at its ends."""
    return text.strip()


def normalized(text: str) -> str:
    """The case-folded words of the text, one space between them."""
    return " ".join(WORD.findall(text.casefold()))


NOTIONS: dict[str, Callable[[str], str]] = {"exact": exact, "normalized": normalized}


def duplicates(splits: dict[str, list[str]], key: Callable[[str], str]) -> dict[str, dict[str, list[int]]]:
    """For each split, the 0-based lines that repeat a text: under its own name an earlier line of itself,
    under another split's name any line of that split.
    """
    keys = {name: [key(text) for text in texts] for name, texts in splits.items()}
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


def conflicts(splits: dict[str, Examples]) -> list[dict[str, dict[str, str]]]:
    """Texts (exact duplicates) with more than one label, each as {split: {line index: label}}."""
    groups: dict[str, list[tuple[str, int, str]]] = {}
    for name, examples in splits.items():
        for index, (text, label) in enumerate(zip(examples.texts, examples.labels, strict=True)):
            groups.setdefault(exact(text), []).append((name, index, label))
    found = []
    for lines in groups.values():
        if len({label for _, _, label in lines}) > 1:
            places: dict[str, dict[str, str]] = {}
            for name, index, label in lines:
                places.setdefault(name, {})[str(index)] = label
            found.append(places)
    return found


def length_statistics(lengths: NDArray[np.int64], max_positions: int) -> dict[str, Any]:
    """Statistics of (examples,) lengths in tokens; the percentile interpolates linearly."""
    truncated = int((lengths > max_positions).sum())
    return {
        "mean": round(float(lengths.mean()), 2),
        "median": float(np.median(lengths)),
        "p95": round(float(np.percentile(lengths, 95)), 1),
        "max": int(lengths.max()),
        "max_positions": max_positions,
        "truncated": truncated,
        "truncated_share": round(truncated / len(lengths), 6),
    }


def token_statistics(
    encoder: TextEncoder, paths: Sequence[str], *, max_positions: int, workers: int
) -> dict[str, Any]:
    """Tokens of one split: "tokens" as fairseq stores them (one </s> per text), unknown ones, and lengths.

    An example's length adds <s>.
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
    return {
        "tokens": tokens,
        "unknown": unknown,
        "unknown_rate": round(unknown / tokens, 6),
        "lengths": length_statistics(lengths, max_positions),
    }


def audit(
    splits: dict[str, Examples],
    encoder: TextEncoder | None = None,
    *,
    max_positions: int = 256,
    workers: int = 1,
) -> dict[str, Any]:
    """The whole report, ready for JSON."""
    texts = {name: examples.texts for name, examples in splits.items()}
    report: dict[str, Any] = {"splits": {}, "duplicates": {}, "conflicts": conflicts(splits)}
    for name, examples in splits.items():
        files = [*examples.text_paths, examples.label_path]
        report["splits"][name] = {
            "sha256": {path: sha256(path) for path in files},
            "lines": len(examples.texts),
            "labels": dict(sorted(Counter(examples.labels).items())),
        }
        if encoder:
            report["splits"][name] |= token_statistics(
                encoder, examples.text_paths, max_positions=max_positions, workers=workers
            )
    for notion, key in NOTIONS.items():
        report["duplicates"][notion] = duplicates(texts, key)
    return report


def read_examples(text_paths: list[str], label_path: str) -> Examples:
    """Read one split; raises `UserError` where texts and labels differ in number."""
    columns = [list(read_text_lines(path)) for path in text_paths]
    labels = list(read_labels(label_path))
    for path, lines in zip(text_paths, columns, strict=True):
        check_line_counts(path, len(lines), label_path, len(labels))
    return Examples(
        text_paths, label_path, ["\t".join(parts) for parts in zip(*columns, strict=True)], labels
    )


def table(report: dict[str, Any]) -> str:
    """The report as a Markdown table, one column per split."""
    splits = report["splits"]
    every = list(splits.values())
    rows = [
        ["lines", *(f"{split['lines']:,}" for split in every)],
        ["different labels", *(f"{len(split['labels']):,}" for split in every)],
    ]
    for label in _shown_labels(splits):
        rows.append([f"label {label}", *(f"{split['labels'].get(label, 0):,}" for split in every)])
    for notion, found in report["duplicates"].items():
        repeats = (f"{len(found[name][name]):,}" for name in splits)
        rows.append([f"repeats an earlier line ({notion})", *repeats])
        for other in splits:
            shared = ("" if name == other else f"{len(found[name][other]):,}" for name in splits)
            rows.append([f"also in {other} ({notion})", *shared])
    if all("lengths" in split for split in every):
        rows.append(["tokens", *(f"{split['tokens']:,}" for split in every)])
        rows.append(["unknown tokens", *(f"{split['unknown_rate']:.2%}" for split in every)])
        for key in ("mean", "median", "p95", "max"):
            rows.append([f"length, {key}", *(f"{split['lengths'][key]:,.0f}" for split in every)])
        truncated = (f"{split['lengths']['truncated_share']:.1%}" for split in every)
        rows.append(["longer than max positions", *truncated])
    conflicting = f"texts with conflicting labels: {len(report['conflicts'])}"
    return f"{markdown(['', *splits], rows)}\n{conflicting}"


def _shown_labels(splits: dict[str, dict[str, Any]]) -> list[str]:
    """All labels in order, or the most and the least frequent ones of many."""
    counts: Counter[str] = Counter()
    for split in splits.values():
        counts.update(split["labels"])
    if len(counts) <= MANY_LABELS:
        return sorted(counts)
    frequent = sorted(counts, key=lambda label: (-counts[label], label))
    return [*frequent[:EXTREMES], *frequent[-EXTREMES:]]


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `audit`."""
    parser = subparsers.add_parser(
        "audit",
        help="duplicates, conflicts, balance and lengths of a data set",
        description=__doc__,
        examples=EXAMPLES,
    )
    for name in ("train", "valid", "test"):
        parser.add_argument(
            f"--{name}pref", required=name == "train", metavar="PREFIX", help="PREFIX.input0 and PREFIX.label"
        )
    add_suffixes(parser)
    parser.add_argument(
        "--sentencepiece-model",
        metavar="MODEL",
        help="SentencePiece model; with --dict, token statistics are added",
    )
    parser.add_argument("--dict", "--srcdict", metavar="DICT", help="fairseq dict.txt of subword tokens")
    parser.add_argument(
        "--max-positions",
        type=positive,
        default=256,
        metavar="N",
        help="maximum length in tokens, for the truncation rate (default: 256)",
    )
    parser.add_argument("--out", metavar="JSON", help="also write the report with all line indices")
    add_reading(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """The command: read, audit, print the table, write the JSON."""
    if bool(args.sentencepiece_model) != bool(args.dict):
        raise UserError("--sentencepiece-model and --dict: use both, to count tokens, or neither")
    prefixes = {"train": args.trainpref, "valid": args.validpref, "test": args.testpref}
    prefixes = {name: prefix for name, prefix in prefixes.items() if prefix}
    inputs = input_suffixes(args.inputs, list(prefixes.values()))
    splits = {
        name: read_examples([f"{prefix}.{suffix}" for suffix in inputs], f"{prefix}.{args.label}")
        for name, prefix in prefixes.items()
    }
    encoder = None
    if args.dict:
        encoder = Encoder.from_files(
            args.sentencepiece_model, args.dict, normalize_apostrophes=args.normalize_apostrophes
        )
    report = audit(splits, encoder, max_positions=args.max_positions, workers=args.workers)
    if args.out:
        atomic_write(args.out, json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    print(table(report))
