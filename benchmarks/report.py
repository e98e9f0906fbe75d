"""The machine and the results: a JSON file, a Markdown table and a figure."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roberta_small.common.errors import count
from roberta_small.common.files import atomic_open, atomic_write
from roberta_small.common.tables import markdown as markdown_table
from roberta_small.experiments import provenance
from roberta_small.experiments.provenance import Machine
from roberta_small.experiments.sweep import PACKAGES as TRAINING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAPABILITIES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8")
VARIABLES = ("OMP_", "MKL_", "KMP_", "GOMP_", "ONEDNN_", "DNNL_", "MALLOC_", "GLIBC_", "LD_PRELOAD", "TORCH")
"""Prefixes of the environment variables that change the speed."""
PACKAGES = ("transformers", "accelerate", "sentencepiece", "sentence-transformers")
COLUMNS = ("work", "contender", "median", "quartiles", "times faster", "peak memory", "and")
LEGEND = (
    "median: over the rounds, of each round's mean; quartiles: of single updates or passes; times faster: by "
    "the medians, against the first contender of the same work; peak memory: of the largest process, "
    "or of the GPU where the contender reports it."
)
# Okabe and Ito's blue and orange, which differ in brightness too (https://jfly.uni-koeln.de/color/).
OURS, OTHERS = "#0072B2", "#E69F00"


def write(document: dict[str, Any], folder: Path) -> str:
    """Write benchmarks.json, benchmarks.md and, after a comparison, benchmarks.png; the text of the second.

    `document` holds `machine` (of `describe_machine`), `device`, `settings` and `benchmarks`, a list of
    results.
    """
    atomic_write(folder / "benchmarks.json", json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    text = markdown(document)
    atomic_write(folder / "benchmarks.md", text)
    comparisons = [result for result in document["benchmarks"] if timed(result)]
    if comparisons:
        with atomic_open(folder / "benchmarks.png", "wb") as stream:
            draw(comparisons).savefig(stream, format="png", dpi=160)
    return text


def markdown(document: dict[str, Any]) -> str:
    """The table of all comparisons with their notes, and the limits of the machine."""
    comparisons = [result for result in document["benchmarks"] if "contenders" in result]
    hardware, packages = document["machine"]["hardware"], document["machine"]["packages"]
    extras = f" ({', '.join(hardware['capabilities'])})" if hardware["capabilities"] else ""
    versions = [
        f"{name} {packages[name]}" for name in ("torch", "fairseq-fixed", "transformers") if name in packages
    ]
    parts = [
        f"Device: {document['device']}. {hardware['cpu']}{extras}, {hardware['cores']} cores, "
        f"{hardware['memory_bytes'] / 2**30:.0f} GiB; Python {packages['python']}, {', '.join(versions)}."
    ]
    if comparisons:
        rows = [_row(result, row) for result in comparisons for row in result["contenders"]]
        parts += [markdown_table(COLUMNS, rows, "llrrrrl", pad=False).rstrip("\n"), LEGEND]
        notes = []
        for result in comparisons:
            rounds = max((len(row.get("rounds", ())) for row in result["contenders"]), default=0)
            agreement = [
                f"{one} outputs differ by {by:.0e}" for one, by in result.get("agreement", {}).items()
            ]
            about = [conclusion(result), count(rounds, "round"), *agreement, result.get("about")]
            notes.append(f"- {result['title']}: {'; '.join(filter(None, about))}.")
        parts.append("\n".join(notes))
    for result in document["benchmarks"]:
        if "quantities" in result:
            rows = [[row["quantity"], f"{row['value']:,.4g}", row["unit"]] for row in result["quantities"]]
            parts.append(markdown_table([result["title"], "", "unit"], rows, "lrl", pad=False).rstrip("\n"))
    return "\n\n".join(parts) + "\n"


def conclusion(result: dict[str, Any]) -> str:
    """Our fastest contender compared with the first and with the fastest of the others, if there are any."""
    ours = min((row for row in timed(result) if row["ours"]), key=lambda row: row["median"], default=None)
    peers = {row["contender"]: row["median"] for row in timed(result) if not row["ours"]}
    if ours is None or not peers:
        return ""
    compared = dict.fromkeys((next(iter(peers)), min(peers, key=peers.__getitem__)))
    return f"{ours['contender']} is " + " and ".join(
        f"{peers[name] / ours['median']:.2f} times as fast as {name}" for name in compared
    )


def timed(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The contenders that ran."""
    return [row for row in result.get("contenders", ()) if "median" in row]


def duration(seconds: float) -> str:
    """A time with three significant digits, in ms if below a second."""
    value, unit = (seconds * 1000, "ms") if seconds < 1 else (seconds, "s")
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def describe_machine(machine: Machine) -> dict[str, Any]:
    """Commit, packages, CPU with its matrix instructions, cores, memory, GPU, the user's variables."""
    found = provenance.static(machine, (*TRAINING, *PACKAGES))
    found["hardware"]["capabilities"] = capabilities()
    variables = {name: value for name, value in sorted(os.environ.items()) if name.startswith(VARIABLES)}
    return found | {"environment": variables}


def capabilities(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """Those of `CAPABILITIES` that the first CPU has; empty if the file cannot be read."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return [name for name in CAPABILITIES if name in flags]


def _row(result: dict[str, Any], row: dict[str, Any]) -> list[str]:
    name = f"**{row['contender']}**" if row["ours"] else row["contender"]
    if "problem" in row:
        return [result["name"], name, *[""] * 4, row["problem"]]
    remarks = [row["note"]] if row["note"] else []
    if "tokens_per_second" in row:
        remarks.append(f"{row['tokens_per_second']:,.0f} tokens/s")
    elif row["wall"] > 1.001 * row["median"]:
        remarks.append(f"whole process {duration(row['wall'])}")
    if "sentences" in result:
        remarks.append(f"{result['sentences'] / row['median']:,.1f} texts/s")
    if "flops_per_second" in row:
        fraction = f"{100 * row['share_of_matrix_rate']:.0f} % of the fastest products"
        remarks.append(f"{row['flops_per_second'] / 1e9:,.0f} GFLOP/s, {fraction}")
    return [
        result["name"],
        name,
        duration(row["median"]),
        f"{duration(row['q1'])} to {duration(row['q3'])}" if row["times"] > 1 else "",
        f"{row['ratio']:.2f}" if "ratio" in row else "",
        f"{row['peak_bytes'] / 2**20:,.0f} MiB",
        ", ".join(remarks),
    ]


def draw(comparisons: list[dict[str, Any]]) -> Figure:
    """One panel for each comparison: shorter is faster; whiskers are quartiles of single times."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    heights = [0.75 + 0.3 * len(timed(result)) for result in comparisons]  # inches: title, bars
    figure = Figure(figsize=(9.0, sum(heights) + 0.5), layout="constrained")
    panels = figure.subplots(len(comparisons), 1, squeeze=False, height_ratios=heights)[:, 0]
    for panel, result in zip(panels, comparisons, strict=True):
        rows = timed(result)
        positions = range(len(rows))
        colors = [OURS if row["ours"] else OTHERS for row in rows]
        panel.barh(positions, [row["median"] for row in rows], color=colors, height=0.7)
        for position, row in zip(positions, rows, strict=True):
            if row["times"] > 1:
                panel.plot([row["q1"], row["q3"]], [position, position], color="0.3", linewidth=1, marker="|")
            ratio = f"  ({row['ratio']:.2f} times)" if position and "ratio" in row else ""
            panel.annotate(
                f"{duration(row['median'])}{ratio}", (max(row["median"], row["q3"]), position), xytext=(6, 0),
                textcoords="offset points", va="center", fontsize=8,
            )  # fmt: skip
        panel.set_yticks(positions, [row["contender"] for row in rows])
        panel.invert_yaxis()
        panel.set_title(result["title"], loc="left", fontsize=10)
        panel.set_xlim(0, 1.28 * max(max(row["median"], row["q3"]) for row in rows))
        panel.set_xlabel("seconds", fontsize=8)
        panel.tick_params(labelsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    figure.legend(
        handles=[Patch(color=OURS, label="this project"), Patch(color=OTHERS, label="others")],
        loc="outside lower center", ncols=2, frameon=False, title_fontsize=8, fontsize=8,
        title="whiskers: quartiles of single times; in brackets: times as fast as the first of the panel",
    )  # fmt: skip
    return figure
