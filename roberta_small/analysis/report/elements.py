"""The page of a report and its elements: sections, tables, figures, provenance; all text is escaped."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from roberta_small.analysis.read.runs import NO_MANIFEST, LoggedRun
from roberta_small.common import archive, manifest
from roberta_small.common.errors import count
from roberta_small.common.files import escaped
from roberta_small.common.tables import LEFT_ALIGNED, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Manifest = manifest.Manifest
ASSETS = Path(__file__).parent / "assets"
LEFT = LEFT_ALIGNED | {"lines of", "also in", "split", "labels"}
SEPARATORS = re.compile(r"[/,_-]")
"""Characters after which the names of groups may be broken."""


@dataclass(frozen=True)
class Section:
    """A section that can be closed."""

    id: str
    title: str
    reading: str
    """How to read it, in one line."""
    parts: Sequence[str]
    """HTML; a section without parts is left out."""
    is_open: bool = False

    def html(self) -> str:
        """The `<details>` element; its heading is the button that opens it."""
        return (
            f'<details id="{self.id}"{" open" if self.is_open else ""}>\n'
            f"<summary><h2>{html.escape(self.title)}</h2></summary>\n"
            f'<p class="reading">{html.escape(self.reading)}</p>\n' + "\n".join(self.parts) + "\n</details>"
        )


@dataclass(frozen=True)
class GroupFacts:
    """Facts of an arm and init as (name, value), and its commands as (run, command)."""

    name: str
    facts: tuple[tuple[str, str], ...]
    commands: tuple[tuple[str, str], ...]


def page(title: str, lede: str, top: Sequence[str], sections: Iterable[Section]) -> str:
    """A page as a single file that loads no others: `top`, then the sections that have parts."""
    sections = [section for section in sections if section.parts]
    script = (ASSETS / "sections.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Template((ASSETS / "page.html").read_text(encoding="utf-8")).substitute(
        title=html.escape(title),
        lede=html.escape(lede),
        style=(ASSETS / "report.css").read_text(encoding="utf-8"),
        links=links((section.id, section.title) for section in sections),
        sections="\n".join([*top, *(section.html() for section in sections)]),
        script=script,
        script_hash=f"sha256-{digest}",
    )


def top_section(name: str, title: str, parts: Iterable[str]) -> str:
    """A section that is always open."""
    return (
        f'<section id="{name}" aria-labelledby="{name}-heading">\n'
        f'<h2 id="{name}-heading">{html.escape(title)}</h2>\n' + "\n".join(parts) + "\n</section>"
    )


def cautions(texts: Sequence[str]) -> list[str]:
    """The texts as a list; nothing for no texts."""
    if not texts:
        return []
    items = "\n".join(f"<li>{html.escape(text)}</li>" for text in texts)
    return [f'<ul class="cautions">\n{items}\n</ul>']


def links(sections: Iterable[tuple[str, str]]) -> str:
    """A list of links to (id, title)."""
    items = (f'<li><a href="#{name}">{html.escape(title)}</a></li>' for name, title in sections)
    return f"<ul>\n{chr(10).join(items)}\n</ul>"


def table(content: Table) -> str:
    """A table with caption, formatted cells and notes, as in Markdown; wide ones scroll in their own box."""
    columns = list(content.shown)
    body = "\n".join(
        _row(columns, row, "td", {column for place, column in content.bold if place == index})
        for index, row in enumerate(content.shown.to_numpy().tolist())
    )
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in content.all_notes)
    name = f"table-{content.name}"
    return (
        f'<h3 id="{name}-heading">{html.escape(content.caption)}</h3>\n'
        f'<div class="wide" role="region" aria-labelledby="{name}-heading" tabindex="0"><table id="{name}">\n'
        f"<thead>{_row(columns, columns, 'th')}</thead>\n<tbody>\n{body}\n</tbody></table></div>\n"
        f'<ul class="notes">{notes}</ul>'
    )


def _row(columns: Sequence[str], cells: Sequence[str], tag: str, bold: Collection[str] = frozenset()) -> str:
    """A table row with the cells of the columns `bold` in bold; names in the first column are its heading.

    Rows with the mean over seeds have a class of their own.
    """
    is_mean = tag == "td" and any(str(cell).startswith("mean ±") for cell in cells)
    written = []
    for index, (column, cell) in enumerate(zip(columns, cells, strict=True)):
        text = html.escape(str(cell))
        if column in LEFT:
            text = SEPARATORS.sub(r"\g<0><wbr>", text)
        text = f"<strong>{text}</strong>" if column in bold else text
        side, names_row = "left" if column in LEFT else "right", index == 0 and column in LEFT
        scope = ' scope="col"' if tag == "th" else ' scope="row"' if names_row else ""
        name = "th" if scope else tag
        written.append(f'<{name}{scope} class="{side}">{text}</{name}>')
    style = ' class="sum"' if is_mean else ""
    return f"<tr{style}>{''.join(written)}</tr>"


def drawings(figures: Iterable[tuple[str, Figure]], captions: Mapping[str, str]) -> dict[str, str]:
    """The name of each figure -> its HTML; a figure wider than the screen scrolls in its own box."""
    return {name: _figure(drawn, name, html.escape(captions[name])) for name, drawn in figures}


def _figure(drawn: Figure, name: str, caption: str) -> str:
    """The figure as an SVG image within the page."""
    from matplotlib import rc_context

    stream = io.BytesIO()
    with rc_context({"svg.hashsalt": name}):
        drawn.savefig(stream, format="svg", metadata={"Date": None})
    content = base64.b64encode(stream.getvalue()).decode()
    return (
        f'<figure id="figure-{name}"><div class="wide" role="region" aria-label="{caption}" tabindex="0">'
        f'<img alt="{caption}" src="data:image/svg+xml;base64,{content}"></div>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def chosen(parts: Mapping[str, str], *names: str) -> list[str]:
    """The parts with these names, of those that exist."""
    return [parts[name] for name in names if name in parts]


def provenance(group: GroupFacts) -> str:
    """The facts of a group, and its commands in an element that can be opened."""
    facts = "".join(f"<dt>{html.escape(key)}</dt><dd>{html.escape(value)}</dd>" for key, value in group.facts)
    commands = "".join(
        f"<p>{html.escape(name)}</p><pre>{html.escape(command)}</pre>" for name, command in group.commands
    )
    details = f"<details><summary>Commands</summary>{commands}</details>" if commands else ""
    return f"<h3>{html.escape(group.name)}</h3>\n<dl>{facts}</dl>\n{details}"


def group_facts(runs: Sequence[LoggedRun]) -> list[GroupFacts]:
    """The facts of each arm and init; runs without a manifest have only a status and their logs."""
    groups: dict[str, list[LoggedRun]] = {}
    for run in runs:
        groups.setdefault(f"{run.arm}/{run.init}", []).append(run)
    return [_facts(name, group) for name, group in groups.items()]


def _facts(name: str, runs: Sequence[LoggedRun]) -> GroupFacts:
    manifests = [run.read_manifest() or {} for run in runs]
    facts = {
        "seeds": ", ".join(str(run.seed) for run in runs),
        "status": _distinct([run.status for run in runs]),
        "logs": _logs([run for run in runs if run.status == NO_MANIFEST]),
        **{
            title: _distinct([describe(content) for content in manifests])
            for title, describe in FACTS.items()
        },
        "trained": _period(manifests),
        "time": _times(manifests),
    }
    commands = [
        (run.name, shlex.join(map(str, content["command"])))
        for run, content in zip(runs, manifests, strict=True)
        if content.get("command")
    ]
    return GroupFacts(name, tuple((key, value) for key, value in facts.items() if value), tuple(commands))


def _distinct(values: Sequence[str]) -> str:
    """The common value, or all values with their numbers of runs. Empty values are excluded."""
    counts = Counter(value for value in values if value)
    if len(counts) <= 1 and sum(counts.values()) == len(values):
        return next(iter(counts), "")
    return "; ".join(f"{value} ({count(number, 'run')})" for value, number in counts.items())


def _logs(runs: Sequence[LoggedRun]) -> str:
    """The common folder of the logs of these runs, and the source of their names."""
    if not runs:
        return ""
    folder = os.path.commonpath([run.place for run in runs])
    return f"{escaped(archive.shown(folder))} (named by the {_distinct([run.named_by for run in runs])})"


def _hardware(content: Manifest) -> str:
    hardware = _object(content, "hardware")
    parts = [hardware.get("gpu") or "no GPU" if "gpu" in hardware else None, hardware.get("cpu")]
    if hardware.get("cores"):
        parts.append(f"{hardware['cores']} cores, threads a run: {hardware.get('threads', '?')}")
    if isinstance(memory := hardware.get("memory_bytes"), int):
        parts.append(f"{memory / 2**30:.0f} GiB")
    return ", ".join(str(part) for part in parts if part)


def _versions(content: Manifest) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(_object(content, "packages").items()))


def _source(content: Manifest) -> str:
    commit = content.get("git_commit")
    return f"{str(commit)[:12]}{' with changes' if content.get('git_changed') else ''}" if commit else ""


def _data(content: Manifest) -> str:
    data = _object(content, "data")
    digest = _object(data, "sha256").get("input0/train.bin")
    return str(data.get("path") or "") + (f" (train.bin sha256 {str(digest)[:12]})" if digest else "")


def _checkpoint(content: Manifest) -> str:
    checkpoint = _object(content, "checkpoint")
    if "path" not in checkpoint:
        return "none: random weights" if "checkpoint" in content else ""
    return f"{checkpoint['path']} (sha256 {str(checkpoint.get('sha256'))[:12]})"


def _period(manifests: Sequence[Manifest]) -> str:
    """From the first start to the last end."""
    started = [str(content["started"]) for content in manifests if content.get("started")]
    ended = [str(content["ended"]) for content in manifests if content.get("ended")]
    if not started or not ended:
        return ""
    return f"{_minute(min(started))} to {_minute(max(ended))} UTC"


def _minute(moment: str) -> str:
    return moment.replace("T", " ")[:16]


def _times(manifests: Sequence[Manifest]) -> str:
    """The duration of each run."""
    seconds = [content.get("seconds") for content in manifests]
    known = [f"{value / 60:.1f}" for value in seconds if isinstance(value, int | float)]
    return f"{', '.join(known)} min" if known else ""


def _object(content: Manifest, key: str) -> dict[str, Any]:
    """The object under an optional key; empty if it is missing or not an object."""
    value = content.get(key)
    return value if isinstance(value, dict) else {}


FACTS: dict[str, Callable[[Manifest], str]] = {
    "recipe": lambda content: str(content.get("recipe") or ""),
    "data": _data,
    "starts from": _checkpoint,
    "precision": lambda content: str(content.get("precision") or ""),
    "hardware": _hardware,
    "versions": _versions,
    "commit": _source,
}
