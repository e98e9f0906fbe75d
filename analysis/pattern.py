"""A path pattern of the user's, such as `{init}/{seed}/{subset}`, for logs that are laid out in another way.

    {arm} {init} {seed} {subset}   what it stands for; a seed may be written 3 or seed3
    *                              any text within one folder's name
    **                             any text

The pattern describes the end of the path of a log's folder. Without `{subset}`, the end is what is left
after the subset's folder and those that say nothing (`layout`). What the pattern does not name is taken
from the folders before what it describes: the init, then the arm.
"""

from __future__ import annotations

import re

from common.errors import UserError

from .layout import ASSUMED_SEED, Name, last_name

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
