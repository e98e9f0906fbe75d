"""One labelled file -> training and validation set: stratified, seeded, and the same on every machine.

In each class the lines are ordered by SHA-256 of "<seed> <line index>" and the first ones are the validation
set; no library's random numbers are involved. Classes share --valid-size in proportion to their size (largest
remainders), and both sets keep the order of the file. DIR/split.json lists the line indices, counted from 0.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from roberta_small.common.data_folder import Report, check_replaceable, finished, request, write_report
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_folder, atomic_open, sha256
from roberta_small.preprocess.labels import check_line_counts, checked_label, read_labels
from roberta_small.preprocess.options import add_destination
from roberta_small.preprocess.readers import TABLE, names, read_records, reader_name, tables

REPORT = "split.json"
EXAMPLES = """examples:
  roberta-small split --text train.review --label train.label --valid-size 200 --seed 1 \\
      --test-text test.review --test-label test.label --out split
  roberta-small split --text train.review --label train.label \\
      --from-indices split/split.json --out split-again
  roberta-small split --text train.xml --valid-size 0.1 --out split
"""

Indices = dict[str, list[int]]


def stratified_split(labels: Sequence[str], valid_size: int, seed: int) -> Indices:
    """0-based line indices of "train" and "valid", ascending; `0 < valid_size < len(labels)`."""
    classes: dict[str, list[int]] = {}
    for index, label in enumerate(labels):
        classes.setdefault(label, []).append(index)
    shares = _proportional_shares({label: len(lines) for label, lines in classes.items()}, valid_size)
    valid = set()
    for label, lines in classes.items():
        valid.update(sorted(lines, key=lambda index: _order(seed, index))[: shares[label]])
    return {
        "train": [index for index in range(len(labels)) if index not in valid],
        "valid": sorted(valid),
    }


def grouped_split(labels: Sequence[str], keys: Sequence[str], sizes: dict[str, int], seed: int) -> Indices:
    """0-based indices of "train" and of each split in `sizes`, ascending; equal `keys` stay in one split.

    As `stratified_split`, but what is ordered are groups of examples with the same key, under the label and
    index of their first one. Every class keeps a group for training, and a split may be smaller than its
    size where the groups do not add up to it.
    """
    groups: dict[str, list[int]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(key, []).append(index)
    classes: dict[str, list[list[int]]] = {}
    for group in groups.values():
        classes.setdefault(labels[group[0]], []).append(group)
    for label in classes:
        classes[label].sort(key=lambda group: _order(seed, group[0]))
    numbers = {label: sum(map(len, of_class)) for label, of_class in classes.items()}
    split: Indices = {"train": [], **{name: [] for name in sizes}}
    for name, size in sizes.items():
        shares = _proportional_shares(numbers, size)
        for label, left in classes.items():
            for group in left[:]:
                if len(left) > 1 and len(group) <= shares[label]:
                    shares[label] -= len(group)
                    split[name] += group
                    left.remove(group)
    split["train"] = [index for left in classes.values() for group in left for index in group]
    return {name: sorted(indices) for name, indices in split.items()}


def load_indices(path: str, texts: Sequence[str], label: str | None) -> Indices:
    """The indices of an earlier split; raises `UserError` if it was made of other files or is malformed."""
    try:
        report = json.loads(Path(path).read_text(encoding="utf-8"))
        options, digests = report["options"], report["sha256"]
        sources = [(digests[old], new) for old, new in zip(options["text"], texts, strict=True)]
        if options["label"] != label and None in (options["label"], label):
            raise ValueError("labels of another file")
        if label is not None:
            sources.append((digests[options["label"]], label))
        indices = {name: [int(i) for i in report["indices"][name]] for name in ("train", "valid")}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path}: not a {REPORT} for {len(texts)} text file(s) ({type(error).__name__}: {error}); "
            "use the split.json written by preprocess split"
        ) from None
    for digest, source in sources:
        if sha256(source) != digest:
            raise UserError(
                f"{source}: not the file that {path} was created from (SHA-256 differs); "
                "use the original file"
            )
    return indices


def split(
    texts: Sequence[str],
    label: str | None,
    destdir: str,
    *,
    reader: str | None = None,
    valid_size: str = "200",
    seed: int = 1,
    from_indices: str | None = None,
    test_texts: Sequence[str] = (),
    test_label: str | None = None,
    overwrite: bool = False,
) -> Report:
    """Write the files of the splits and `split.json` in one step; returns the report.

    `texts` is one file of any registered format (`preprocess.readers`), or two parallel ones for sentence
    pairs. `label` is a file of one label per line; without it (None) the labels are those of the first text
    file. `reader` names the format; by default the suffix decides. `valid_size` is a number of lines or, with
    a decimal point, a fraction of them. Everything is held in memory.

    Raises `UserError` for bad input, and then writes nothing.
    """
    options: dict[str, Any] = {"text": list(texts), "label": label}
    options |= {"test_text": list(test_texts), "test_label": test_label}
    options |= {"reader": reader} if reader else {}
    options |= {"from_indices": from_indices} if from_indices else {"valid_size": valid_size, "seed": seed}
    files = [*texts, *test_texts, *filter(None, [label, test_label, from_indices])]
    wanted = request(options, files)
    destination = Path(destdir)
    if (report := finished(destination, REPORT, wanted)) is not None:
        return report
    check_replaceable(destination, REPORT, overwrite=overwrite)

    columns = _read_columns(texts, label, reader)
    labels = columns["label"]
    if from_indices:
        indices = load_indices(from_indices, texts, label)
        _check_indices(indices, len(labels), from_indices)
    else:
        indices = stratified_split(labels, part_of(valid_size, len(labels), "--valid-size"), seed)
    parts = {
        name: {kind: [lines[i] for i in indices[name]] for kind, lines in columns.items()} for name in indices
    }
    if test_texts:
        parts["test"] = _read_columns(test_texts, test_label, reader)

    counts = {name: dict(sorted(Counter(part["label"]).items())) for name, part in parts.items()}
    with atomic_folder(destination) as folder:
        for name, part in parts.items():
            for kind, lines in part.items():
                with atomic_open(folder / f"{name}.{kind}") as stream:
                    stream.writelines(f"{line}\n" for line in lines)
        return write_report(folder, REPORT, wanted | {"labels": counts, "indices": indices})


def _order(seed: int, index: int) -> bytes:
    return hashlib.sha256(f"{seed} {index}".encode()).digest()


def _proportional_shares(sizes: dict[str, int], total: int) -> dict[str, int]:
    """Parts of `total` in proportion to `sizes`, by largest remainders; ties go to the first name."""
    exact = {name: Fraction(size * total, sum(sizes.values())) for name, size in sizes.items()}
    shares = {name: int(share) for name, share in exact.items()}
    by_remainder = sorted(sizes, key=lambda name: (shares[name] - exact[name], name))
    for name in by_remainder[: total - sum(shares.values())]:
        shares[name] += 1
    return shares


def part_of(size: str, lines: int, flag: str) -> int:
    """A number of lines, given as such or as a fraction; raises `UserError` naming `flag`."""
    try:
        number = round(Fraction(size) * lines) if "." in size else int(size)
    except ValueError:
        raise UserError(f"{flag} {size}: must be a number, or a fraction such as 0.1") from None
    if not 0 < number < lines:
        raise UserError(
            f"{flag} {size}: {number} of {lines} examples; use 1 to {lines - 1}, or a fraction such as 0.1"
        )
    return number


def _read_columns(texts: Sequence[str], label: str | None, reader: str | None) -> dict[str, list[str]]:
    """Lines by suffix: "input0" (and "input1"), "label"; raises `UserError` where their numbers differ."""
    for path in texts:
        if reader_name(path, reader) == TABLE:
            for note in tables.detect(path)[1]:
                print(note)
    records = [list(read_records(path, reader)) for path in texts]
    first = records[0]
    columns = {f"input{i}": [record.text for record in rows] for i, rows in enumerate(records)}
    if len(texts) == 1 and any(record.pair is not None for record in first):
        columns["input1"] = []
        for record in first:
            if record.pair is None:
                raise UserError(
                    f"{texts[0]}, line {record.line}: no second text, but other examples have one"
                )
            columns["input1"].append(record.pair)
    if label is not None:
        labels = list(read_labels(label))
    elif any(record.label is None for record in first):
        raise UserError(f"{texts[0]}: no labels in this file; pass a label file with --label")
    else:
        labels = [checked_label(record.label or "", texts[0], record.line) for record in first]
    for path, rows in zip(texts, records, strict=True):
        check_line_counts(path, len(rows), label or texts[0], len(labels))
    return columns | {"label": labels}


def _check_indices(indices: Indices, lines: int, path: str) -> None:
    used = [index for part in indices.values() for index in part]
    wrong = [index for index, count in Counter(used).items() if count > 1 or not 0 <= index < lines]
    if wrong:
        raise UserError(f"{path}: index {wrong[0]} is repeated or outside the {lines:,} lines; split again")


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `split`."""
    parser = subparsers.add_parser(
        "split",
        help="split a labelled file into a training and a validation set",
        description=__doc__,
        examples=EXAMPLES,
    )
    parser.add_argument(
        "--text", nargs="+", required=True, metavar="FILE", help="raw text; two parallel files for pairs"
    )
    parser.add_argument(
        "--label",
        metavar="FILE",
        help="label file, one label per line (default: the labels in the text file)",
    )
    parser.add_argument(
        "--reader", metavar="NAME", help=f"format of the text: {', '.join(names())} (default: by suffix)"
    )
    parser.add_argument(
        "--valid-size",
        default="200",
        metavar="N",
        help="size of the validation set: lines, or a fraction such as 0.1 (default: 200)",
    )
    parser.add_argument("--seed", type=int, default=1, help="random seed of the split (default: 1)")
    parser.add_argument(
        "--from-indices", metavar="JSON", help="reuse the indices of a split.json of the same files"
    )
    parser.add_argument(
        "--test-text",
        nargs="+",
        default=[],
        metavar="FILE",
        help="test text, copied to test.input0; two files for pairs",
    )
    parser.add_argument("--test-label", metavar="FILE", help="labels of the test text, copied to test.label")
    add_destination(parser, "DIR")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """The command: check the options, split, print the number of lines of each class."""
    if len(args.text) > 2:
        raise UserError("--text: specify one file, or two for sentence pairs")
    with_label = args.label is not None
    if len(args.test_text) not in (0, len(args.text)) or (
        bool(args.test_label) != bool(args.test_text and with_label)
    ):
        raise UserError(
            "--test-text and --test-label: pass both, with as many text files as --text "
            "(no --test-label if the text files contain the labels)"
        )
    report = split(
        args.text,
        args.label,
        args.out,
        reader=args.reader,
        valid_size=args.valid_size,
        seed=args.seed,
        from_indices=args.from_indices,
        test_texts=args.test_text,
        test_label=args.test_label,
        overwrite=args.overwrite,
    )
    for name, counts in report["labels"].items():
        print(f"{name}: {sum(counts.values()):,} lines; {_listed(counts)}")
    print(f"written to {args.out}")


def _listed(counts: dict[str, Any]) -> str:
    return ", ".join(f"label {label}: {count:,}" for label, count in counts.items())
