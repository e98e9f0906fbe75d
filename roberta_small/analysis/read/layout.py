"""Arm, init, seed and subset from the path of a log.

A path is parsed from its end: the folder of a subset (train, train_inner, valid, test, a sibling of these, or
a folder in `tensorboard/`), folders with generic names (tensorboard, runs, logs, a date and a host), the seed
(3, seed3, s3, random-seed3), the init, the arm. This is the layout of fairseq, Transformers and this project.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from roberta_small.common.errors import UserError

SUBSET = re.compile(r"train_inner|train|valid\d*|test\d*|eval|val|validation|dev")
FAIRSEQ_SUBSETS = frozenset({"train", "train_inner", "valid"})
SUBSET_NAMES = {"eval": "valid", "val": "valid", "validation": "valid", "dev": "valid"}
SPLIT = r"(?P<subset>train_inner|train|valid|test|eval|val|validation|dev)"
TAG = re.compile(SPLIT + "[/_](?P<metric>.+)", re.DOTALL)
# Loss/train, acc_val: loops with a SummaryWriter.
LAST_TAG = re.compile("(?P<metric>.+)[/_]" + SPLIT, re.DOTALL)
# Transformers with eval_dataset={"valid": ..., "test": ...}.
EVAL_TAG = re.compile(r"eval[/_](?P<subset>train|valid|test|val|validation|dev)_(?P<metric>.+)", re.DOTALL)
NO_SUBSET = "unnamed"
# Transformers logs into runs/Nov21_07-43-53_host.
GENERIC = re.compile(
    r"(tensorboard|tb)(_logs)?|runs|logs?|events|checkpoints?|ckpt|[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_.*",
    re.DOTALL,
)
SEED = re.compile(r"(?:(?P<init>.+)[-_.])?(?:seed|s)[-_=]?(?P<seed>\d+)|(?P<number>\d+)", re.DOTALL)
ASSUMED_SEED = 0


@dataclass(frozen=True)
class Name:
    """The name of the run in `folder`; `named_by` is its source, path or pattern."""

    folder: str
    arm: str
    init: str
    seed: int
    named_by: str


def split_subset(path: Sequence[str], siblings: Collection[str]) -> tuple[str | None, list[str]]:
    """The subset after which the folder of a log is named (or None), and the parts of the path before it.

    `siblings` are the names of all folders with logs in the same parent folder. Beside train or valid every
    name is that of a subset, because fairseq's users choose the names.
    """
    *parts, name = path
    known = SUBSET.fullmatch(name) or not FAIRSEQ_SUBSETS.isdisjoint(siblings)
    if not known and (parts[-1:] != ["tensorboard"] or GENERIC.fullmatch(name)):
        return None, [*parts, name]
    return plain_subset(name, siblings), parts


def plain_subset(name: str, siblings: Collection[str]) -> str:
    """The usual name of a subset: valid for validation, dev, ...

    Unchanged if a sibling has or would get the same name, so that subsets are never mixed.
    """
    plain = SUBSET_NAMES.get(name, name)
    others = {SUBSET_NAMES.get(sibling, sibling) for sibling in siblings if sibling != name}
    return name if plain in others else plain


def name_run(path: Sequence[str]) -> Name:
    """Seed, init and arm from the end of a path without its subset; a missing seed is assumed to be 0."""
    parts = strip(path)
    folder = "/".join(parts)
    named_by, init = "path", None
    if match := SEED.fullmatch(parts[-1]):
        seed, init = int(match["seed"] or match["number"]), match["init"]
        parts.pop()
    elif len(parts) > 1 and (match := SEED.fullmatch(parts[-2])) and match["seed"]:
        seed = int(match["seed"])  # <arm>/seed<N>/<init>
        del parts[-2]
    else:
        seed, named_by = ASSUMED_SEED, "path, seed assumed"
    init = init or last_name(parts)
    return Name(folder, last_name(parts), init, seed, named_by)


def strip(path: Sequence[str]) -> list[str]:
    """The path without folders with generic names at its end."""
    parts = list(path)
    while len(parts) > 1 and GENERIC.fullmatch(parts[-1]):
        parts.pop()
    return parts


def last_name(parts: list[str]) -> str:
    """Remove and return the last part that is not generic; "-" at the root of the file system."""
    parts[:] = strip(parts)
    return (parts.pop() if parts else "") or "-"


def split_tag(tag: str) -> tuple[str, str]:
    """(subset, metric) of a tag in a log with all subsets.

    eval/loss is the loss on valid, eval/test_loss that on test.
    """
    match = EVAL_TAG.fullmatch(tag) or TAG.fullmatch(tag) or LAST_TAG.fullmatch(tag)
    return (
        (SUBSET_NAMES.get(match["subset"], match["subset"]), match["metric"]) if match else (NO_SUBSET, tag)
    )


FIELDS = {"arm": r"[^/]+?", "init": r"[^/]+?", "seed": r"(?:seed[-_=]?)?\d+", "subset": r"[^/]+?"}
WILD = {"**": ".*", "*": "[^/]*"}
WORD = re.compile(
    r"\{(?P<field>[^{}]*)\}|(?P<wild>\*\*|\*)|(?P<slash>/)|(?P<text>[^{}*/]+)|(?P<bad>.)", re.DOTALL
)
EXAMPLE = "for example '{init}/{seed}/{subset}'"


class Pattern:
    """A parsed --pattern; raises `UserError` if it is malformed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.fields: list[str] = []
        self._path = self._compile(r"(?P<before>(?:.*/)?)", "/")
        # In the file names of exports, slashes may have become underscores.
        self._export = self._compile(r"(?P<before>(?:.*?[/_])??)", "[/_]")
        self.has_subset = "subset" in self.fields

    def name(self, path: str) -> tuple[Name, str | None] | None:
        """Run and subset from the path of a log's folder, if possible without generic names at its end."""
        stripped = None if self.has_subset else self._path.fullmatch("/".join(strip(path.split("/"))))
        return self._name(stripped or self._path.fullmatch(path), "")

    def name_export(self, run: str, folder: str) -> tuple[Name, str | None] | None:
        """Run and subset from the run's name in the name of an exported file; None without a match."""
        return self._name(self._export.fullmatch(run), folder + "/")

    def _name(self, match: re.Match[str] | None, folder: str) -> tuple[Name, str | None] | None:
        if match is None:
            return None
        found = match.groupdict()
        before = (folder + found["before"]).rstrip("/").split("/")
        end = max(
            (match.end(field) for field in self.fields if field != "subset"), default=match.end("before")
        )
        init = found.get("init") or last_name(before)
        arm = found.get("arm") or last_name(before)
        seed, named_by = ASSUMED_SEED, "pattern, seed assumed"
        if "seed" in found:
            seed, named_by = int(re.findall(r"\d+$", found["seed"])[0]), "pattern"
        return Name(folder + match.string[:end].rstrip("/_"), arm, init, seed, named_by), found.get("subset")

    def _compile(self, before: str, slash: str) -> re.Pattern[str]:
        self.fields, parts = [], [before]
        for word in WORD.finditer(self.text.strip("/")):
            kind = word.lastgroup
            if kind == "field":
                name = word["field"]
                if name not in FIELDS:
                    known = ", ".join(f"{{{field}}}" for field in FIELDS)
                    raise UserError(f"--pattern '{self.text}': unknown field '{{{name}}}'; use {known}")
                if name in self.fields:
                    raise UserError(f"--pattern '{self.text}': '{{{name}}}' occurs twice; replace one by *")
                self.fields.append(name)
                parts.append(f"(?P<{name}>{FIELDS[name]})")
            elif kind == "wild":
                parts.append(WILD[word["wild"]])
            elif kind == "slash":
                parts.append(slash)
            elif kind == "text":
                parts.append(re.escape(word["text"]))
            else:
                raise UserError(f"--pattern '{self.text}': unexpected '{word['bad']}'; {EXAMPLE}")
        if not self.fields:
            raise UserError(f"--pattern '{self.text}': no field such as {{seed}}; {EXAMPLE}")
        return re.compile("".join(parts), re.DOTALL)


PROPOSED = ["{init}/{seed}/runs/{arm}", "{init}/runs/{arm}"]
PROPOSED += [f"{{arm}}/{'*/' * between}{run}" for run in ("{init}/{seed}", "{init}") for between in range(4)]
PROPOSED += ["{init}/{seed}/{arm}"]


def propose(folders: Iterable[str | os.PathLike[str]], taken: Collection[tuple[str, str, int]] = ()) -> str:
    """Advice with a --pattern that gives the runs in these folders different names, none `taken`; or ""."""
    places = [os.path.abspath(folder) for folder in folders]
    for text in PROPOSED:
        found = [match[0] for place in places if (match := Pattern(text).name(place))]
        names = {(name.arm, name.init, name.seed) for name in found}
        if len(names.difference(taken)) == len(places):
            return f" or distinguish them with --pattern '{text}'"
    return ""
