"""The method tfidf: TF-IDF of word n-grams and a linear model on line files; its options and its run.

The model is a logistic regression, for multi-label data one for each class, and for numeric labels a ridge
regression.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_small.common.cli import OneOrMore, SettingsParser, positive
from roberta_small.common.errors import UserError
from roberta_small.common.files import shown_path
from roberta_small.common.label_kinds import KIND, KINDS, MULTI_LABEL, Labels, Scaling
from roberta_small.common.run import TFIDF
from roberta_small.eval.tfidf import examples_of, label_targets
from roberta_small.experiments.inputs import files as inputs
from roberta_small.experiments.inputs import prepare
from roberta_small.experiments.inputs.prepare import Source
from roberta_small.experiments.methods import MODEL, Command, Method
from roberta_small.experiments.recipe.recipe import Recipe
from roberta_small.experiments.settings import Settings
from roberta_small.experiments.sweep import Sweep, Training, run_below, soft_labels_note
from roberta_small.preprocess import dictionary
from roberta_small.preprocess.label_cells import label_lines
from roberta_small.preprocess.labels import check_line_counts, class_names, classes_in
from roberta_small.preprocess.readers.lines import read_text_lines

INIT, SEED = "tfidf", 0
RECIPE = Recipe(
    "logistic-regression",
    (
        *("--max-epoch", "1", "--valid-subset", "valid,test"),
        *("--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric"),
    ),
)
"""What the log of a run contains."""
PACKAGES = ("scikit-learn", "scipy", "numpy", "tensorboard")
DESCRIPTION = f"""\
TF-IDF of word n-grams and logistic regression, fitted on train: a baseline for neural classifiers.
The strength of the regularization is chosen by accuracy on valid, among 13 values of C
from 0.01 to 10000 on a logarithmic scale; the smallest C wins a tie.
Test is not used for the choice. Multi-label data have a logistic regression for each class, chosen by
{KINDS[MULTI_LABEL].metric}, and numeric labels a ridge regression with the penalty 1/C, chosen by
the squared error.

A word is a run of two or more letters, digits or underscores, in lower case (scikit-learn's token_pattern).
In scripts without spaces, such as Chinese, Japanese and Thai, every character is a word.
The features of a sentence pair are those of both texts and their cosine similarity.

The fit is deterministic: there is one run, OUT/tfidf/{INIT}/seed{SEED}, with the scores as TensorBoard
scalars, the predictions of valid and test, {MODEL}: the chosen C and the most informative n-grams of each
class, and {TFIDF}, with which `roberta-small predict` classifies other texts."""

EXAMPLES = """examples:
  roberta-small train --method tfidf --data reviews.csv --out runs
  roberta-small train --method tfidf --text cls-books/split --out runs
  roberta-small train --method tfidf --data books=data/books films=films.csv --out runs
  roberta-small train --method tfidf --text cls-books/split --out runs --ngrams 1 1 --min-df 2 --no-sublinear
  roberta-small tables runs
"""


@dataclass(frozen=True)
class Features:
    """Selection and weighting of n-grams."""

    ngrams: tuple[int, int] = (1, 2)
    """Minimum and maximum number of words of an n-gram."""
    min_df: int = 1
    """N-grams that occur in fewer training texts are ignored."""
    sublinear: bool = True
    """Whether n occurrences in a text count as 1 + log(n). On CLS-books and the sets of results/own-data,
    validation accuracy is then higher on average."""

    def words(self) -> list[str]:
        """The features as command-line words."""
        flags = ["--ngrams", *map(str, self.ngrams), "--min-df", str(self.min_df)]
        return [*flags, *(["--sublinear"] if self.sublinear else [])]


def add_features(parser: argparse.ArgumentParser) -> None:
    """Add the options of `Features`."""
    parser.add_argument(
        "--ngrams", type=positive, nargs=2, default=(1, 2), metavar=("MIN", "MAX"),
        help="minimum and maximum number of words of an n-gram (1 2)",
    )  # fmt: skip
    parser.add_argument(
        "--min-df", type=positive, default=1, metavar="N",
        help="ignore n-grams that occur in fewer than N training texts (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--sublinear", action=argparse.BooleanOptionalAction, default=True,
        help="count n occurrences in a text as 1 + log(n) (default)",
    )  # fmt: skip


def features(options: argparse.Namespace) -> Features:
    """The values of `add_features`; raises `UserError` for a minimum above the maximum."""
    shortest, longest = options.ngrams
    if shortest > longest:
        raise UserError(f"--ngrams {shortest} {longest}: MIN is larger than MAX; write {longest} {shortest}")
    return Features((shortest, longest), options.min_df, options.sublinear)


@dataclass(frozen=True, kw_only=True)
class TfidfSettings(Settings):
    """Settings of the method."""

    source: Source | None
    """What --data names; None with --text."""
    text: Path | None
    """The folder of --text."""
    features: Features


class Tfidf(Method):
    """The method `tfidf`."""

    name = "tfidf"
    summary = "TF-IDF of word n-grams and logistic regression, on text"
    outputs = (MODEL, TFIDF)

    def add_arguments(self, parser: SettingsParser) -> None:
        """Add --data or --text, --out and the options of the features."""
        parser.description, parser.epilog = DESCRIPTION, EXAMPLES
        prepare.add_data(parser)
        parser.add_setting(
            "text", None,
            "instead of --data: folder with SPLIT.input0 and SPLIT.label, as the text/ of a data folder; "
            "several: NAME=FOLDER NAME=FOLDER ...",
            nargs="+", action=OneOrMore,
        )  # fmt: skip
        parser.add_setting("out", "runs", "folder of the runs")
        parser.add_argument(
            "--dry-run", action="store_true", help="print the plan and the commands only (a file is prepared)"
        )
        add_features(parser)
        prepare.add_options(parser)

    def settings(self, options: argparse.Namespace) -> TfidfSettings:
        """The settings; the run uses the CPU."""
        if options.passthrough:
            raise UserError(f"after --: {options.passthrough[0]}: the method tfidf accepts no flags after --")
        if (options.text is None) == (options.data is None):
            problem = "both are given" if options.text is not None else "both are missing"
            raise UserError(f"--data and --text (or RS_DATA= and RS_TEXT=): {problem}; pass one of them")
        if options.text is not None:
            prepare.reject_options(options, f"--text {options.text} contains the splits already")
        return TfidfSettings(
            out=Path(options.out),
            dry_run=options.dry_run,
            device="cpu",
            source=None if options.data is None else prepare.source(options),
            text=None if options.text is None else Path(options.text),
            features=features(options),
        )

    def prepare(self, settings: TfidfSettings) -> Path:
        """The folder of line files: --text, or that of the data folder or file in --data."""
        inputs.require_writable(settings.out)
        if settings.source is None:
            assert settings.text is not None
            return settings.text
        return prepare.text_folder(prepare.data_folder(settings.source))

    def sweep(self, settings: TfidfSettings, data: Path) -> Sweep:
        """The one run; the files are read once to find what is wrong with them."""
        labels = read_folder(data)[1]
        kind = labels.kind
        run = run_below(settings.out, self.name, INIT, SEED)
        recipe, words = RECIPE.replace(inputs.subset_flags(data.parent)), settings.features.words()
        # Not recorded: version 1, which counted occurrences, had no such flag.
        flags = words if settings.features.sublinear else [*words, "--no-sublinear"]
        if not kind.exclusive:
            recipe = recipe.replace(("--best-checkpoint-metric", kind.metric))
        identity = {
            "data": inputs.fingerprint_data(data, file_names(data)),
            "checkpoint": None,
            "recipe_flags": words,
            **({} if kind.exclusive else {KIND: kind.name}),
        }
        return Sweep(
            settings=settings,
            data=data,
            trainings=(Training(run, recipe, tuple(flags), identity),),
            recipe=recipe,
            out=settings.out,
            majorities=inputs.majorities(data.parent, recipe.valid_subsets, labels.classes, recipe.metric),
            notes=() if settings.source is None else tuple(soft_labels_note(data.parent, used=False)),
            packages=PACKAGES,
        )

    def command(self, sweep: Sweep, training: Training, *, resume: bool, cpu: bool) -> Command:
        """The process that fits and writes the run."""
        folders = (str(sweep.data.absolute()), str(training.run.folder.absolute()))
        argv = (sys.executable, "-P", "-m", "roberta_small.experiments.methods.tfidf.model", *folders)
        shown = ("roberta-small", "train", "--method", self.name, "--text", shown_path(sweep.data))
        out = ("--out", shown_path(sweep.settings.out))
        return Command((*argv, *training.flags), (*shown, *out, *training.flags))


METHOD = Tfidf()


@dataclass(frozen=True)
class Split:
    """The examples of one split, line by line."""

    texts: list[Any]
    """A string, or a pair of strings, each."""
    lines: list[str]
    """The labels, as lines of `preprocess.labels`."""
    targets: Any
    """The same as in `common.label_kinds`."""


def file_names(folder: Path) -> list[str]:
    """Names of the files that `read_folder` reads: without test in data prepared without it."""
    splits = ("train", "valid") if inputs.subset_flags(folder.parent) else ("train", "valid", "test")
    kinds = ("input0", *(["input1"] if (folder / "train.input1").exists() else []), "label")
    return [f"{split}.{kind}" for split in splits for kind in kinds]


def read_folder(folder: Path) -> tuple[dict[str, Split], Labels]:
    """Read train, valid and, if there is one, test; and what the outputs of a model mean.

    Classes are those of train in the order of the label dictionary. Numbers are standardized on train.
    Raises `UserError` for a missing or malformed file, one class, and classes that train has not.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; give the text/ of a data folder")
    if missing := [name for name in file_names(folder) if not (folder / name).is_file()]:
        raise UserError(
            f"{folder}: missing {', '.join(missing)}; give the text/ of a data folder (roberta-small prepare)"
        )
    kind = inputs.label_kind(folder.parent)
    read: dict[str, tuple[list[Any], list[str]]] = {}
    names = file_names(folder)
    for split in dict.fromkeys(name.partition(".")[0] for name in names):
        label_path, columns = str(folder / f"{split}.label"), []
        lines = label_lines(label_path, kind)
        for path in (str(folder / name) for name in names if name.startswith(f"{split}.input")):
            columns.append(list(read_text_lines(path)))
            check_line_counts(path, len(columns[-1]), label_path, len(lines))
        read[split] = examples_of(columns), lines
    lines = read["train"][1]
    if kind.has_classes:
        found = dictionary.build([name for line in lines for name in classes_in(line, kind)])
        labels = Labels(kind, tuple(class_names(found)))
    else:
        labels = Labels(kind, scaling=Scaling.of([float(line) for line in lines]))
    if kind.has_classes and len(labels.classes) < 2:
        raise UserError(
            f"{folder / 'train.label'}: every label is {''.join(labels.classes)}; a classifier needs two "
            "classes or more"
        )
    splits = {
        name: Split(texts, lines, label_targets(lines, labels, folder / f"{name}.label"))
        for name, (texts, lines) in read.items()
    }
    return splits, labels
