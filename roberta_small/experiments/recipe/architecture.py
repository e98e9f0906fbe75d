"""The architecture of runs with an initial checkpoint: it is read from the checkpoint, before a run starts.

`fit` returns the flags of fairseq-train that a recipe lacks to build the network of each checkpoint. A recipe
that is without them keeps its defaults (`--arch roberta_small`); a flag that the user gives and that
contradicts the checkpoint is an error. Random weights get the architecture of the checkpoints if all agree,
so that initializations are compared on the same network.

Reading a checkpoint and resolving the defaults of an architecture needs torch and fairseq, which take seconds
to import. It is done in a separate process, unless the caller has imported them anyway.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roberta_small.common.cli import flags_of
from roberta_small.common.errors import UserError, enumerate_some
from roberta_small.common.files import shown_path
from roberta_small.common.label_kinds import REGRESSION, SINGLE_LABEL
from roberta_small.experiments.recipe import fairseq_flags
from roberta_small.experiments.recipe import recipe as recipes
from roberta_small.experiments.recipe.recipe import Recipe

if TYPE_CHECKING:
    from roberta_small.fairseq_plugin.checkpoints.architecture import Architecture, Head

OWN = ("roberta_small", "causal_roberta_small", "causal_lm_small")
"""Values of --arch that select a model of the plugin. In a recipe file, their sizes are only defaults."""
HEAD_NAME = "sentence_classification_head"
"""Default of --classification-head-name."""
POOLING, POSITIONS, TOKENS = "--pooling", "--max-positions", "--tokens-per-sample"
AFTER, GRID = "after --", "--grid"
"""Places of flags, beside recipe files."""
RELEVANT = (
    "--task",
    "--arch",
    "--encoder",
    "--precision",
    "--token-types",
    POOLING,
    POSITIONS,
    TOKENS,
)
"""The flags that the architecture depends on, beside those of its fields."""


@dataclass(frozen=True)
class Fit:
    """What the recipes of a sweep lack for its initial checkpoints."""

    flags: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """Arm -> init -> words to add to the arm's recipe; nothing for an init that needs none."""
    notes: dict[str, list[str]] = field(default_factory=dict)
    """Arm -> lines for the plan."""

    def words(self, arm: str, init: str) -> list[str]:
        """The words to add to the recipe of the runs of an arm and an init."""
        return self.flags.get(arm, {}).get(init, [])


def fit(
    by_arm: Mapping[str, Recipe],
    places: Mapping[str, str],
    inits: Mapping[str, Path | None],
    *,
    classes: Sequence[str] = (),
    kind: str = SINGLE_LABEL,
    pairs: bool = False,
    pools: bool = True,
    separate: bool = True,
) -> Fit:
    """Compare the recipe of each arm with the checkpoints of the inits.

    `places` is that of `places_of`, `classes` are the names of the data's classes (none for pre-training),
    `kind` is that of the labels (with numbers, `classes` is empty),
    `pairs` is whether the data are pairs of texts, `pools` whether the method has --pooling mean, and
    `separate` whether to use a separate process.

    Raises `UserError` for an unreadable
    checkpoint, a contradicting flag, a table of positions that is too short, and an architecture that no
    flags can express.
    """
    if not any(inits.values()):
        return Fit()
    request = {
        "recipes": {arm: list(recipe.words) for arm, recipe in by_arm.items()},
        "places": dict(places),
        "inits": {init: path and str(path) for init, path in inits.items()},
        "classes": list(classes),
        "kind": kind,
        "pairs": pairs,
        "pools": pools,
    }
    if not separate:
        return Fit(**_answer(request))
    answer = fairseq_flags.ask(f"{__name__}:main", request)
    if "error" in answer:
        raise UserError(answer["error"])
    return Fit(**answer)


def places_of(recipe: str, passthrough: Sequence[str], grid: Iterable[str] = ()) -> dict[str, str]:
    """Where each flag that the user gives comes from; `grid` contains flags without dashes."""
    places = recipes.places(recipe) | dict.fromkeys(flags_of(passthrough), AFTER)
    return places | {f"--{flag}": GRID for flag in grid}


def main() -> None:
    """Answer a request on standard input; for the separate process."""
    request = json.load(sys.stdin)
    try:
        answer = _answer(request)
    except UserError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer))


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    from roberta_small.fairseq_plugin.checkpoints.architecture import head_of, of_state
    from roberta_small.fairseq_plugin.checkpoints.loading import read_outline

    inits = {init: path and Path(path) for init, path in request["inits"].items()}
    states = {path: read_outline(path) for path in inits.values() if path}
    found = {path: of_state(path, state) for path, state in states.items()}
    heads = {path: head_of(state) for path, state in states.items()}
    flags: dict[str, dict[str, list[str]]] = {}
    notes: dict[str, list[str]] = {}
    for arm, words in request["recipes"].items():
        comparison = _Comparison(tuple(words), request["places"], request["pairs"], request["pools"])
        added = {path: comparison.words_for(path, theirs, heads[path]) for path, theirs in found.items()}
        flags[arm], notes[arm] = _distribute(inits, found, added)
        notes[arm] += [
            f"{init}: {note}"
            for init, path in inits.items()
            if path
            for note in (
                comparison.truncation(path, found[path]),
                comparison.vector(path, found[path]),
                comparison.head(path, heads[path], request["classes"], request["kind"]),
            )
            if note
        ]
    return {"flags": flags, "notes": notes}


def _distribute(
    inits: Mapping[str, Path | None], found: Mapping[Path, Architecture], added: Mapping[Path, list[str]]
) -> tuple[dict[str, list[str]], list[str]]:
    """The words to add for each init, and notes. Random weights get those of the checkpoints if all agree."""
    networks = {
        dataclasses.replace(one, positions=None, pooler_activation=None, pooling=None)
        for one in found.values()
    }
    flags, notes = {}, []
    for init, path in inits.items():
        if path is not None and added[path]:
            flags[init] = added[path]
            notes.append(f"{init}: architecture of {shown_path(path)}: {' '.join(added[path])}")
        elif path is None and len(networks) > 1:
            notes.append(f"{init}: architecture of the recipe, because those of the checkpoints differ")
        elif path is None and any(added.values()):
            source, flags[init] = next((source, words) for source, words in added.items() if words)
            notes.append(f"{init}: the same architecture, that of {shown_path(source)}")
    return flags, notes


@dataclass(frozen=True)
class _Comparison:
    """A recipe and the places of its flags, to compare with checkpoints."""

    words: tuple[str, ...]
    places: Mapping[str, str]
    pairs: bool
    """Whether the data are pairs of texts."""
    pools: bool
    """Whether the method has --pooling mean."""

    def words_for(self, path: Path, theirs: Architecture, head: Head | None) -> list[str]:
        """The words to add to the recipe; raises `UserError` as `fit`."""
        ours = _resolve(self.words)
        if theirs.causal != ours.causal:
            raise UserError(
                f"{path}: a {'left-to-right' if theirs.causal else 'masked'} model (--arch {theirs.arch}), "
                f"but the recipe has --arch {ours.arch}; use a recipe of such models (for fine-tuning: "
                f"--recipe {'causal-reference' if theirs.causal else 'reference'})"
            )
        names = theirs.differences(ours)
        wrong = [text for name in names if (text := self._contradiction(name, theirs, ours))]
        if wrong:
            raise UserError(
                f"{'; '.join(wrong)} ({path}); the architecture is read from the checkpoint: remove the "
                "flags, or use --inits random"
            )
        added = [
            *theirs.flags_from(ours),
            *self._shorter(theirs, ours),
            *self._pooling(theirs, ours, head),
            *(["--token-types"] if theirs.token_types and self.pairs and not ours.token_types else []),
        ]
        result = _resolve(Recipe("", self.words).replace(added).words)
        if left := theirs.differences(result):
            raise UserError(
                f"{path}: {', '.join(theirs.describe(name) for name in left)}: no flags of fairseq-train "
                "build such a network together with those of the recipe"
            )
        stored, built = theirs.positions, result.positions
        if stored is not None and built is not None and stored < built:
            raise UserError(
                f"{path}: {stored} positions, but {POSITIONS} is {built} "
                f"({self.places.get(POSITIONS, 'default')}); use -- {POSITIONS} {stored}"
            )
        return added

    def _shorter(self, theirs: Architecture, ours: Architecture) -> list[str]:
        """The flag for a checkpoint with fewer positions than a recipe file states."""
        stored, built = theirs.positions, ours.positions
        explicit = self.places.get(POSITIONS) in (AFTER, GRID) or TOKENS in flags_of(self.words)
        if stored is None or built is None or stored >= built or explicit:
            return []
        return [POSITIONS, str(stored)]

    def _pooling(self, theirs: Architecture, ours: Architecture, head: Head | None) -> list[str]:
        """The flag for the sentence vector of a checkpoint's head, or of a sentence encoder.

        A head was trained on one vector, and a recipe file does not give it another.
        """
        by_recipe = POOLING in flags_of(self.words) and head is None
        explicit = by_recipe or self.places.get(POOLING) in (AFTER, GRID)
        differs = theirs.pooling is not None and theirs.pooling != ours.pooling
        return [POOLING, str(theirs.pooling)] if differs and self.pools and not explicit else []

    def vector(self, path: Path, theirs: Architecture) -> str | None:
        """A note if the method does not have the pooling of the checkpoint."""
        if self.pools or theirs.pooling in (None, "first"):
            return None
        return f"{shown_path(path)} has {POOLING} {theirs.pooling}, but this method uses the first token"

    def truncation(self, path: Path, theirs: Architecture) -> str | None:
        """A note if the checkpoint has more positions than the recipe."""
        stored, ours = theirs.positions, _resolve(self.words).positions
        if stored is None or ours is None or stored <= ours:
            return None
        return (
            f"{shown_path(path)} has {stored} positions, of which the first {ours} are used "
            f"(--max-positions {ours}; --max-length {stored} uses all)"
        )

    def head(self, path: Path, theirs: Head | None, classes: Sequence[str], kind: str) -> str | None:
        """What happens to the classification head of a checkpoint."""
        if theirs is None or not (classes or kind == REGRESSION):
            return None
        name = flags_of(self.words).get("--classification-head-name", ("", HEAD_NAME))[-1]
        has = f"{shown_path(path)} has a classification head"
        if theirs.kind != kind:
            return f"{has} of the kind {theirs.kind}, not {kind}: a new one starts from random weights"
        if kind == REGRESSION:
            fate = "which is kept" if theirs.name == name else "of another name: a new one starts"
            return f"{has}, {fate}"
        if theirs.class_names is not None:
            has += f" for {enumerate_some(theirs.class_names)}"
        if theirs.name != name or theirs.classes != len(classes):
            other = f" ({theirs.classes} classes, the data have {len(classes)})"
            return f"{has}{other if theirs.name == name else ''}: a new one starts from random weights"
        if theirs.class_names is None or list(theirs.class_names) == list(classes):
            return f"{has}, which is kept"
        from roberta_small.fairseq_plugin.checkpoints.architecture import class_rows

        rows = class_rows(theirs.class_names, classes)
        if rows is None:
            return f"{has}, not for {enumerate_some(classes)}: a new one starts from random weights"
        matched = (f"{theirs.class_names[row]} as {name}" for row, name in zip(rows, classes, strict=True))
        return f"{has}, which is kept: {enumerate_some(matched)}"

    def _contradiction(self, name: str, theirs: Architecture, ours: Architecture) -> str | None:
        """What is wrong with the flag that sets a field, if the user gives it."""
        from roberta_small.fairseq_plugin.checkpoints.architecture import SWITCHES, VALUES

        flag = (VALUES | SWITCHES).get(name)
        place = None if flag is None else self.places.get(flag)
        stated = ours.describe(name)
        if place is None and self._names_arch():
            arch = flags_of(self.words)["--arch"][1]
            place, stated = self.places["--arch"], f"--arch {arch} ({stated})"
        return place and f"{place}: {stated}, but the checkpoint has {theirs.describe(name)}"

    def _names_arch(self) -> bool:
        """Whether the user gives the sizes by a value of --arch."""
        place, group = self.places.get("--arch"), flags_of(self.words).get("--arch", ())
        return place is not None and (place in (AFTER, GRID) or not set(group) & set(OWN))


@functools.cache
def _resolve(words: tuple[str, ...]) -> Architecture:
    """The architecture that fairseq-train builds from a recipe; raises `UserError` for an invalid value."""
    from roberta_small.fairseq_plugin.checkpoints.architecture import SWITCHES, VALUES

    groups = flags_of(words)
    relevant = {*RELEVANT, *VALUES.values(), *SWITCHES.values()}
    return _parse(tuple(word for flag, group in groups.items() if flag in relevant for word in group))


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
