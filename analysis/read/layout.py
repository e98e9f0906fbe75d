"""What the path of a log says about its run: arm, init, seed and subset.

A path is read from its end: the folder of a subset (train, train_inner, valid, test, what lies beside one of
these or in `tensorboard/`), folders that say nothing (tensorboard, runs, logs, a date and a host), the
seed (3, seed3, s3, random-seed3), the init, the arm. So fairseq, Transformers and this project write.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from common.errors import UserError

SUBSET = re.compile(r"train_inner|train|valid\d*|test\d*|eval|val|validation|dev")
FAIRSEQ_SUBSETS = frozenset({"train", "train_inner", "valid"})
SUBSET_NAMES = {"eval": "valid", "val": "valid", "validation": "valid", "dev": "valid"}
TAG = re.compile(r"(train_inner|train|valid|test|eval|val|validation|dev)[/_](.+)", re.DOTALL)
# Transformers with eval_dataset={"valid": ..., "test": ...}.
EVAL_TAG = re.compile(r"eval[/_](train|valid|test|val|validation|dev)_(.+)", re.DOTALL)
NO_SUBSET = "unnamed"
# Transformers logs into runs/Nov21_07-43-53_host.
SAYS_NOTHING = re.compile(
    r"(tensorboard|tb)(_logs)?|runs|logs?|events|checkpoints?|ckpt|[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_.*",
    re.DOTALL,
)
SEED = re.compile(r"(?:(?P<init>.+)[-_.])?(?:seed|s)[-_=]?(?P<seed>\d+)|(?P<number>\d+)", re.DOTALL)
ASSUMED_SEED = 0


@dataclass(frozen=True)
class Name:
    """What a path says about the run that lies in `folder`; `named_by` tells how that was found out."""

    folder: str
    arm: str
    init: str
    seed: int
    named_by: str


def split_subset(path: Sequence[str], siblings: Collection[str]) -> tuple[str | None, list[str]]:
    """The subset that the folder of a log is called after, and the parts of the path before it.

    `siblings` are the names of the folders with logs that lie in the same folder, its own too. Beside train
    or valid every name is that of a subset, as fairseq's users choose them.
    """
    *parts, name = path
    known = SUBSET.fullmatch(name) or not FAIRSEQ_SUBSETS.isdisjoint(siblings)
    if not known and (parts[-1:] != ["tensorboard"] or SAYS_NOTHING.fullmatch(name)):
        return None, [*parts, name]
    return plain_subset(name, siblings), parts


def plain_subset(name: str, siblings: Collection[str]) -> str:
    """The name that tables know a subset by: valid for validation, dev, ...

    Its own where a sibling has that name, or would have it too: two subsets are never one.
    """
    plain = SUBSET_NAMES.get(name, name)
    others = {SUBSET_NAMES.get(sibling, sibling) for sibling in siblings if sibling != name}
    return name if plain in others else plain


def name_run(path: Sequence[str]) -> Name:
    """Seed, init and arm from the end of a path without its subset."""
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
    """The path without the folders at its end that say nothing about the run."""
    parts = list(path)
    while len(parts) > 1 and SAYS_NOTHING.fullmatch(parts[-1]):
        parts.pop()
    return parts


def last_name(parts: list[str]) -> str:
    """Take the last part that says something off; "-" at the root of the file system."""
    parts[:] = strip(parts)
    return (parts.pop() if parts else "") or "-"


def split_tag(tag: str) -> tuple[str, str]:
    """Subset and metric of a tag in a log that has one folder for all.

    eval/loss is the loss on valid, eval/test_loss that on test.
    """
    if match := EVAL_TAG.fullmatch(tag) or TAG.fullmatch(tag):
        return SUBSET_NAMES.get(match[1], match[1]), match[2]
    return NO_SUBSET, tag


FIELDS = {"arm": r"[^/]+?", "init": r"[^/]+?", "seed": r"(?:seed[-_=]?)?\d+", "subset": r"[^/]+?"}
WILD = {"**": ".*", "*": "[^/]*"}
WORD = re.compile(
    r"\{(?P<field>[^{}]*)\}|(?P<wild>\*\*|\*)|(?P<slash>/)|(?P<text>[^{}*/]+)|(?P<bad>.)", re.DOTALL
)
EXAMPLE = "for example '{init}/{seed}/{subset}'"


class Pattern:
    """A pattern that has been read; raises `UserError` for one that cannot be understood."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.fields: list[str] = []
        self._path = self._compile(r"(?P<before>(?:.*/)?)", "/")
        # In exports, a run's slashes may have become underscores, and its name begins in the file's name.
        self._export = self._compile(r"(?P<before>(?:.*?[/_])??)", "[/_]")

    @property
    def has_subset(self) -> bool:
        """Whether the pattern says where the subset is."""
        return "subset" in self.fields

    def name(self, path: str) -> tuple[Name, str | None] | None:
        """The run and the subset of the path of a log's folder, None where they are not described."""
        return self._name(self._path.fullmatch(path), "")

    def name_export(self, run: str, folder: str) -> tuple[Name, str | None] | None:
        """The same from the name of a run in the name of a file that TensorBoard exported."""
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
            seed, named_by = int(re.search(r"\d+$", found["seed"])[0]), "pattern"
        return Name(folder + match.string[:end].rstrip("/_"), arm, init, seed, named_by), found.get("subset")

    def _compile(self, before: str, slash: str) -> re.Pattern[str]:
        self.fields, pieces = [], [before]
        for word in WORD.finditer(self.text.strip("/")):
            kind = word.lastgroup
            if kind == "field":
                pieces.append(self._field(word["field"]))
            elif kind == "wild":
                pieces.append(WILD[word["wild"]])
            elif kind == "slash":
                pieces.append(slash)
            elif kind == "text":
                pieces.append(re.escape(word["text"]))
            else:
                raise UserError(f"pattern '{self.text}': '{word['bad']}' stands alone; {EXAMPLE}")
        if not self.fields:
            raise UserError(f"pattern '{self.text}': it names nothing; {EXAMPLE}")
        return re.compile("".join(pieces), re.DOTALL)

    def _field(self, name: str) -> str:
        if name not in FIELDS:
            raise UserError(f"pattern '{self.text}': '{{{name}}}' is none of {{{'}, {'.join(FIELDS)}}}")
        if name in self.fields:
            raise UserError(f"pattern '{self.text}': '{{{name}}}' stands there twice; use * for the other")
        self.fields.append(name)
        return f"(?P<{name}>{FIELDS[name]})"
