"""`python -m experiments lora-table`: accuracy and cost of runs, for example of LoRA and full fine-tuning.

Reads run folders as python -m analysis does: accuracy at the best validation from the logs; parameters,
seconds and peak memory from the manifests of the methods transformers and lora. Use python -m analysis
compare to test for differences between groups of runs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from roberta_small.common import manifest
from roberta_small.common.cli import Parser
from roberta_small.common.tables import FORMATS, Table, render, whole, write_tables

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


FIGURE = "accuracy_and_parameters"
MEASURED = ("trainable_parameters", "parameters", "seconds", "peak_memory_bytes")
MIB = 1 << 20
EXAMPLES = """examples:
  python -m experiments lora-table runs
  python -m experiments lora-table runs --format json
  python -m experiments lora-table runs --out report
"""


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m experiments lora-table`; the exit code."""
    parser = Parser(prog="python -m experiments lora-table", description=__doc__, examples=EXAMPLES)
    parser.add_argument("runs", type=Path, metavar="RUNS", help="folder with runs below it")
    parser.add_argument("--format", choices=FORMATS, default="markdown", help="(%(default)s)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help=f"folder for the table in all formats and {FIGURE}.png"
    )
    run(parser.parse_args(argv))
    return 0


def run(args: argparse.Namespace) -> None:
    """The command."""
    from roberta_small.analysis.figures.style import save_figure

    runs = measured_runs(args.runs)
    table = cost_table(runs)
    if args.out is None:
        print(render([table], args.format), end="")
        return
    paths = write_tables([table], args.out)
    if runs["trainable_parameters"].notna().any():
        paths.append(save_figure(draw(runs), args.out, FIGURE))
    for path in paths:
        print(path)


def measured_runs(folder: Path) -> pd.DataFrame:
    """A row for each finished run with an accuracy: arm, init, seed, valid, test and `MEASURED`.

    Values that the manifest does not contain are NaN. Raises `UserError` as `analysis.load_runs` and
    `best_checkpoints` do.
    """
    import pandas as pd

    from roberta_small.analysis import best_checkpoints, find_runs, read_runs, select_finished

    runs = select_finished(find_runs(folder))
    best = best_checkpoints(read_runs(runs), reported="test")[["arm", "init", "seed", "valid", "test"]]
    rows = []
    for one in runs:
        content = manifest.read(one.path) or {}
        known = {key: content.get(key, math.nan) for key in MEASURED}
        rows.append({"arm": one.arm, "init": one.init, "seed": one.seed} | known)
    return best.merge(pd.DataFrame(rows), on=["arm", "init", "seed"], how="left")


def cost_table(runs: pd.DataFrame) -> Table:
    """Means over the seeds of each arm and init; `data` has one row per run."""
    import pandas as pd

    shown = []
    for (arm, init), group in runs.groupby(["arm", "init"]):
        mean = group[["test", *MEASURED]].mean()
        shown.append(
            {
                "arm": arm,
                "init": init,
                "seeds": str(len(group)),
                "test accuracy (%)": f"{mean['test']:.2f} ± {group['test'].std(ddof=1):.2f}"
                if len(group) > 1
                else f"{mean['test']:.2f}",
                "trained parameters": whole(mean["trainable_parameters"]),
                "of all (%)": _percent(mean["trainable_parameters"], mean["parameters"]),
                "seconds": whole(mean["seconds"]),
                "peak memory (MiB)": whole(mean["peak_memory_bytes"] / MIB),
            }
        )
    return Table(
        name="lora",
        caption="Accuracy at the best validation, and what training took: mean over seeds",
        notes=(
            "Best: highest accuracy on valid, the latest of equal ones. ±: sample standard deviation "
            "(ddof 1) over seeds.",
            "seconds: of the whole run, with loading and validation. Peak memory: resident memory of the "
            "process, or GPU memory allocated by PyTorch. –: not recorded in the manifest.",
        ),
        data=runs.assign(metric="accuracy", ddof=1),
        shown=pd.DataFrame(shown),
    )


def draw(runs: pd.DataFrame) -> Figure:
    """Test accuracy of each run against its trained parameters, on a logarithmic axis."""
    from matplotlib.figure import Figure

    from roberta_small.analysis.figures.style import finish, legend_below, styles, wrap

    known = runs[runs["trainable_parameters"].notna()]
    names = [f"{arm}/{init}" for arm, init in known.groupby(["arm", "init"]).groups]
    style_of = styles(names)
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    panel = figure.subplots()
    for name, ((_, _), group) in zip(names, known.groupby(["arm", "init"]), strict=True):
        style = style_of[name]
        panel.plot(
            group["trainable_parameters"], group["test"], linestyle="none", marker=style["marker"],
            color=style["color"], alpha=0.8, markeredgecolor="white", markersize=7, label=wrap(name),
        )  # fmt: skip
        x, mean = group["trainable_parameters"].mean(), group["test"].mean()
        panel.plot([x / 1.25, x * 1.25], [mean, mean], color=style["color"], linewidth=2)
    panel.set_xscale("log")
    panel.set_xlim(known["trainable_parameters"].min() / 3, known["trainable_parameters"].max() * 3)
    panel.set_xlabel("trained parameters")
    panel.set_ylabel("test accuracy (%)")
    panel.set_title("A mark for each seed, a bar for their mean", fontsize="medium", loc="left")
    finish(panel, "both")
    legend_below(figure)
    return figure


def _percent(part: float, total: float) -> str:
    return "–" if math.isnan(part) or math.isnan(total) else f"{100 * part / total:.2f}"
