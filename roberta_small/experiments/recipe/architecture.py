"""The architecture of runs with an initial checkpoint: it is read from the checkpoint, before a run starts.

`fit` returns the flags of fairseq-train that a recipe lacks to build the network of each checkpoint. A recipe
that is without them keeps its defaults (`--arch roberta_small`); a flag that the user gives and that
contradicts the checkpoint is an error. Random weights get the architecture of the checkpoints if all agree,
so that initializations are compared on the same network.

Functions import what reads checkpoints and resolves architectures, because torch and fairseq take seconds.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from roberta_small.common.cli import flags_of
from roberta_small.common.errors import UserError, enumerate_some
from roberta_small.common.files import shown_path
from roberta_small.common.label_kinds import KINDS, REGRESSION, SINGLE_LABEL, LabelKind
from roberta_small.experiments.recipe import fairseq_flags
from roberta_small.experiments.recipe import recipe as recipes
from roberta_small.experiments.recipe.recipe import Recipe

if TYPE_CHECKING:
    from roberta_small.fairseq_plugin.checkpoints.architecture import Architecture, Head

OWN = ("roberta_small", "causal_roberta_small", "causal_lm_small")
"""Values of --arch that select a model of the plugin. In a recipe file, their sizes are only defaults."""
HEAD_NAME = "sentence_classification_head"
"""Default of --classification-head-name."""
POOLING, HEAD, POSITIONS, TOKENS = "--pooling", "--head", "--max-positions", "--tokens-per-sample"
LINEAR = (HEAD, "linear")
AFTER, GRID = "after --", "--grid"
"""Places of flags, beside recipe files."""
RELEVANT = ("--task", "--arch", "--encoder", "--precision", "--token-types", POOLING, HEAD, POSITIONS, TOKENS)
"""The flags that the architecture depends on, beside those of its fields."""


@dataclass(frozen=True)
class Checkpoint:
    """What is read of an initial checkpoint."""

    path: Path
    """For messages: as the user wrote it."""
    architecture: Architecture
    head: Head | None


def read(path: Path, given: Path | None = None) -> Checkpoint:
    """Read a checkpoint that the user wrote as `given`; raises `UserError` if that is impossible."""
    from roberta_small.fairseq_plugin.checkpoints.architecture import head_of, of_state
    from roberta_small.fairseq_plugin.checkpoints.loading import read_outline

    state = read_outline(path)
    return Checkpoint(given or path, of_state(given or path, state), head_of(state, given or path))


@dataclass(frozen=True)
class Fit:
    """What a recipe lacks for initial checkpoints."""

    flags: dict[str, list[str]] = field(default_factory=dict)
    """Init -> words to add to the recipe; nothing for an init that needs none."""
    notes: list[str] = field(default_factory=list)
    """Lines for the plan."""


def places_of(recipe: str, passthrough: Sequence[str], grid: Iterable[str] = ()) -> dict[str, str]:
    """Where each flag that the user gives comes from; `grid` contains flags without dashes."""
    places = recipes.places(recipe) | dict.fromkeys(flags_of(passthrough), AFTER)
    return places | {f"--{flag}": GRID for flag in grid}


def fit(
    recipe: Recipe,
    places: Mapping[str, str],
    inits: Mapping[str, Checkpoint | None],
    *,
    classes: Sequence[str] = (),
    kind: LabelKind = KINDS[SINGLE_LABEL],
    pairs: bool = False,
    pools: bool = True,
) -> Fit:
    """Compare a recipe with the checkpoints of the inits.

    `places` is that of `places_of`, `classes` are the names of the data's classes (none for pre-training and
    numbers), `kind` is that of the labels, `pairs` is whether the data are pairs of texts, and `pools`
    whether the method has --pooling mean. Raises `UserError` for a contradicting flag, a table of positions
    that is too short, and an architecture that no flags can express.
    """
    found = {init: one for init, one in inits.items() if one is not None}
    if not found:
        return Fit()
    ours = _resolve(recipe)
    added = {init: _added(recipe, ours, places, one, pairs, pools) for init, one in found.items()}
    # Random weights get the architecture of the checkpoints if all agree.
    networks = {
        dataclasses.replace(one.architecture, positions=None, pooler_activation=None, pooling=None, head=None)
        for one in found.values()
    }
    flags = {init: words for init, words in added.items() if words}
    source = next(iter(flags), None)
    notes = []
    for init, one in inits.items():
        if one is not None and init in flags:
            notes.append(f"{init}: architecture of {shown_path(one.path)}: {' '.join(flags[init])}")
        elif one is None and len(networks) > 1:
            notes.append(f"{init}: architecture of the recipe, because those of the checkpoints differ")
        elif one is None and source is not None:
            notes.append(f"{init}: the same architecture, that of {shown_path(found[source].path)}")
            flags[init] = flags[source]
    for init, one in found.items():
        shown, theirs = shown_path(one.path), one.architecture
        if theirs.positions is not None and ours.positions is not None and theirs.positions > ours.positions:
            notes.append(
                f"{init}: {shown} has {theirs.positions} positions, of which the first {ours.positions} are "
                f"used (--max-positions {ours.positions}; --max-length {theirs.positions} uses all)"
            )
        if not pools and theirs.pooling not in (None, "first"):
            notes.append(
                f"{init}: {shown} has {POOLING} {theirs.pooling}, but this method uses the first token"
            )
        if one.head is not None and (classes or kind.name == REGRESSION):
            name = recipe.value("--classification-head-name") or HEAD_NAME
            fate = _fate_of(one.head, name, classes, kind)
            if HEAD not in flags.get(init, ()) and theirs.head != ours.head:
                fate = f" ({HEAD} {theirs.head}): a new one starts"
            notes.append(f"{init}: {shown} has a classification head{fate}")
    return Fit({init: flags[init] for init in inits if init in flags}, notes)


def _added(
    recipe: Recipe,
    ours: Architecture,
    places: Mapping[str, str],
    checkpoint: Checkpoint,
    pairs: bool,
    pools: bool,
) -> list[str]:
    """The words that the architecture of a checkpoint adds to a recipe; raises `UserError` as `fit`."""
    path, theirs = checkpoint.path, checkpoint.architecture
    if theirs.causal != ours.causal:
        raise UserError(
            f"{path}: a {'left-to-right' if theirs.causal else 'masked'} model (--arch {theirs.arch}), "
            f"but the recipe has --arch {ours.arch}; use a recipe of such models (for fine-tuning: "
            f"--recipe {'causal-reference' if theirs.causal else 'reference'})"
        )
    wrong = [
        text
        for name in theirs.differences(ours)
        if (text := _contradiction(name, recipe, places, theirs, ours))
    ]
    if wrong:
        raise UserError(
            f"{'; '.join(wrong)} ({path}); the architecture is read from the checkpoint: remove the "
            "flags, or use --inits random"
        )
    by_user = [flag for flag, place in places.items() if place in (AFTER, GRID)]
    added = theirs.flags_from(ours)
    # Fewer positions than a recipe file states; a longer table than the checkpoint's is an error below.
    stored, built = theirs.positions, ours.positions
    shorter = stored is not None and built is not None and stored < built
    if shorter and POSITIONS not in by_user and TOKENS not in recipe.flags:
        added += [POSITIONS, str(stored)]
    # A head was trained on one vector, and a recipe file does not give it another, or another form.
    for flag in (POOLING, HEAD) if pools else ():
        name = flag.removeprefix("--")
        explicit = flag in by_user or (flag in recipe.flags and checkpoint.head is None)
        if not explicit and getattr(theirs, name) not in (None, getattr(ours, name)):
            added += [flag, str(getattr(theirs, name))]
    if theirs.token_types and pairs and not ours.token_types:
        added += ["--token-types"]
    result = _resolve(recipe.replace(added))
    if left := theirs.differences(result):
        raise UserError(
            f"{path}: {', '.join(theirs.describe(name) for name in left)}: no flags of fairseq-train "
            "build such a network together with those of the recipe"
        )
    if stored is not None and result.positions is not None and stored < result.positions:
        raise UserError(
            f"{path}: {stored} positions, but {POSITIONS} is {result.positions} "
            f"({places.get(POSITIONS, 'default')}); use -- {POSITIONS} {stored}"
        )
    return added


def _contradiction(
    name: str, recipe: Recipe, places: Mapping[str, str], theirs: Architecture, ours: Architecture
) -> str | None:
    """What is wrong with the flag that sets a field, or with the value of --arch, if the user gives it."""
    from roberta_small.fairseq_plugin.checkpoints.architecture import SWITCHES, VALUES

    place, stated = places.get((VALUES | SWITCHES).get(name, "")), ours.describe(name)
    arch = places.get("--arch")
    if place is None and arch is not None and (arch in (AFTER, GRID) or recipe.value("--arch") not in OWN):
        place, stated = arch, f"--arch {recipe.value('--arch')} ({stated})"
    return place and f"{place}: {stated}, but the checkpoint has {theirs.describe(name)}"


def _fate_of(head: Head, name: str, classes: Sequence[str], kind: LabelKind) -> str:
    """What happens to the classification head of a checkpoint in runs whose head has a `name`."""
    from roberta_small.fairseq_plugin.checkpoints.architecture import class_rows

    if head.kind != kind.name:
        return f" of the kind {head.kind}, not {kind.name}: a new one starts from random weights"
    if kind.name == REGRESSION:
        return ", which is kept" if head.name == name else ", of another name: a new one starts"
    names = "" if head.class_names is None else f" for {enumerate_some(head.class_names)}"
    if head.name != name:
        return f"{names}: a new one starts from random weights"
    if head.classes != len(classes):
        other = f" ({head.classes} classes, the data have {len(classes)})"
        return f"{names}{other}: a new one starts from random weights"
    if head.class_names is None or list(head.class_names) == list(classes):
        return f"{names}, which is kept"
    rows = class_rows(head.class_names, classes)
    if rows is None:
        return f"{names}, not for {enumerate_some(classes)}: a new one starts from random weights"
    matched = (f"{head.class_names[row]} as {name}" for row, name in zip(rows, classes, strict=True))
    return f"{names}, which is kept: {enumerate_some(matched)}"


def _resolve(recipe: Recipe) -> Architecture:
    """The architecture that fairseq-train builds from a recipe; raises `UserError` for an invalid value."""
    from roberta_small.fairseq_plugin.checkpoints.architecture import SWITCHES, VALUES

    relevant = {*RELEVANT, *VALUES.values(), *SWITCHES.values()}
    return _parse(tuple(word for flag in recipe.flags if flag in relevant for word in recipe.flags[flag]))


@functools.cache
def _parse(words: tuple[str, ...]) -> Architecture:
    from fairseq import options

    from roberta_small.fairseq_plugin.checkpoints.architecture import arch_name, is_roberta, of_arguments

    with fairseq_flags.parser_errors(lambda message: UserError(f"fairseq-train: {message}")):
        parser = options.get_training_parser()
        arguments = options.parse_args_and_arch(parser, ["data", *words])
    if not is_roberta(name := arch_name(arguments)):
        raise UserError(f"--arch {name}: cannot start from a checkpoint of a RoBERTa; use --inits random")
    return of_arguments(arguments)
