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
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, NamedTuple

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


class GroupFacts(NamedTuple):
    """The facts of an arm and init, and the command of each run that recorded one."""

    name: str
    facts: dict[str, str]
    commands: dict[str, str]


def page(
    title: str, lede: str, warnings: Sequence[str], results: Sequence[str], sections: Iterable[Section]
) -> str:
    """A page as a single file that loads no others.

    The warnings (texts) and results (HTML) are always open; the sections that have parts can be closed.
    """
    top = ['<section id="results" aria-labelledby="results-heading">\n<h2 id="results-heading">Results</h2>']
    if warnings:
        items = "\n".join(f"<li>{html.escape(text)}</li>" for text in warnings)
        top.append(f'<ul class="cautions">\n{items}\n</ul>')
    top += [*results, "</section>"]
    sections = [section for section in sections if section.parts]
    script = (ASSETS / "sections.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    links = "\n".join(f'<li><a href="#{one.id}">{html.escape(one.title)}</a></li>' for one in sections)
    return Template((ASSETS / "page.html").read_text(encoding="utf-8")).substitute(
        title=html.escape(title),
        lede=html.escape(lede),
        style=(ASSETS / "report.css").read_text(encoding="utf-8"),
        links=f"<ul>\n{links}\n</ul>",
        sections="\n".join([*top, *(section.html() for section in sections)]),
        script=script,
        script_hash=f"sha256-{digest}",
    )


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
    """The name of each figure -> its SVG image in HTML; one wider than the screen scrolls in its own box."""
    from matplotlib import rc_context

    found = {}
    for name, drawn in figures:
        stream, caption = io.BytesIO(), html.escape(captions[name])
        with rc_context({"svg.hashsalt": name}):
            drawn.savefig(stream, format="svg", metadata={"Date": None})
        content = base64.b64encode(stream.getvalue()).decode()
        found[name] = (
            f'<figure id="figure-{name}">'
            f'<div class="wide" role="region" aria-label="{caption}" tabindex="0">'
            f'<img alt="{caption}" src="data:image/svg+xml;base64,{content}"></div>'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    return found


def chosen(parts: Mapping[str, str], *names: str) -> list[str]:
    """The parts with these names, of those that exist."""
    return [parts[name] for name in names if name in parts]


def provenance(group: GroupFacts) -> str:
    """The facts of a group, and its commands in an element that can be opened."""
    facts = "".join(
        f"<dt>{html.escape(key)}</dt><dd>{html.escape(value)}</dd>" for key, value in group.facts.items()
    )
    commands = "".join(
        f"<p>{html.escape(name)}</p><pre>{html.escape(text)}</pre>" for name, text in group.commands.items()
    )
    details = f"<details><summary>Commands</summary>{commands}</details>" if commands else ""
    return f"<h3>{html.escape(group.name)}</h3>\n<dl>{facts}</dl>\n{details}"


def group_facts(runs: Sequence[LoggedRun]) -> list[GroupFacts]:
    """The facts of each arm and init; runs without a manifest have only a status and their logs."""
    groups: dict[str, list[LoggedRun]] = {}
    for run in runs:
        groups.setdefault(run.group, []).append(run)
    found = []
    for name, group in groups.items():
        manifests = [run.read_manifest() or {} for run in group]
        facts = {
            "seeds": ", ".join(str(run.seed) for run in group),
            "status": _distinct([run.status for run in group]),
        }
        if logged := [run for run in group if run.status == NO_MANIFEST]:
            folder = os.path.commonpath([run.place for run in logged])
            named_by = _distinct([run.named_by for run in logged])
            facts["logs"] = f"{escaped(archive.shown(folder))} (named by the {named_by})"
        recorded = [_recorded(content) for content in manifests]
        facts |= {title: _distinct([texts[title] for texts in recorded]) for title in recorded[0]}
        started = [str(content["started"]) for content in manifests if content.get("started")]
        ended = [str(content["ended"]) for content in manifests if content.get("ended")]
        if started and ended:
            period = [moment.replace("T", " ")[:16] for moment in (min(started), max(ended))]
            facts["trained"] = f"{' to '.join(period)} UTC"
        seconds = [content.get("seconds") for content in manifests]
        if times := [f"{value / 60:.1f}" for value in seconds if isinstance(value, int | float)]:
            facts["time"] = f"{', '.join(times)} min"
        commands = {
            run.name: shlex.join(map(str, content["command"]))
            for run, content in zip(group, manifests, strict=True)
            if content.get("command")
        }
        found.append(GroupFacts(name, {key: value for key, value in facts.items() if value}, commands))
    return found


def _distinct(values: Sequence[str]) -> str:
    """The common value, or all values with their numbers of runs. Empty values are excluded."""
    counts = Counter(value for value in values if value)
    if len(counts) <= 1 and sum(counts.values()) == len(values):
        return next(iter(counts), "")
    return "; ".join(f"{value} ({count(number, 'run')})" for value, number in counts.items())


def _recorded(content: Manifest) -> dict[str, str]:
    """Facts of a manifest by their title, empty if they are not recorded."""

    def entry(holder: Manifest, key: str) -> dict[str, Any]:
        """The object under an optional key; empty if it is missing or not an object."""
        found = holder.get(key)
        return found if isinstance(found, dict) else {}

    data, checkpoint, hardware = (entry(content, key) for key in ("data", "checkpoint", "hardware"))
    read = str(data.get("path") or "")
    if digest := entry(data, "sha256").get("input0/train.bin"):
        read += f" (train.bin sha256 {str(digest)[:12]})"
    start = "none: random weights" if "checkpoint" in content else ""
    if "path" in checkpoint:
        start = f"{checkpoint['path']} (sha256 {str(checkpoint.get('sha256'))[:12]})"
    machine = [hardware.get("gpu") or "no GPU" if "gpu" in hardware else None, hardware.get("cpu")]
    if hardware.get("cores"):
        machine.append(f"{hardware['cores']} cores, threads a run: {hardware.get('threads', '?')}")
    if isinstance(memory := hardware.get("memory_bytes"), int):
        machine.append(f"{memory / 2**30:.0f} GiB")
    versions = sorted(entry(content, "packages").items())
    commit = str(content.get("git_commit") or "")[:12]
    return {
        "recipe": str(content.get("recipe") or ""),
        "data": read,
        "starts from": start,
        "precision": str(content.get("precision") or ""),
        "hardware": ", ".join(str(part) for part in machine if part),
        "versions": ", ".join(f"{name} {version}" for name, version in versions),
        "commit": f"{commit} with changes" if commit and content.get("git_changed") else commit,
    }
