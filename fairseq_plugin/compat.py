"""Every function of fairseq that this plugin replaces, in one table.

`install` puts each replacement in place when the package is imported; no other module of the plugin assigns
to a name of fairseq. A replacement is made from the function it replaces (`original -> function`), lives in
the module of its topic, and carries a marker. Before it is installed, the chain of wrapped functions
(`__wrapped__`) is searched for that marker, so that a patch is installed once, and also where another plugin
has wrapped the same function.

    python -m fairseq_plugin.compat
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from common.cli import Parser
from common.errors import report_errors

VERSION = "0.12.3.1"
"""Of fairseq (`fairseq-fixed`), against which the replacements were written."""
MARKER = "_fairseq_plugin_patch"
"""Attribute of an installed replacement: its entry in `PATCHES`, as `Patch.key`."""


@dataclass(frozen=True)
class Patch:
    """One replaced function: a module's function, a method, or the getter of a property."""

    target: str
    """Full name in fairseq."""
    replacement: str
    """MODULE:FUNCTION in this package; FUNCTION(original) returns the replacement."""
    reason: str
    version: str = VERSION

    @property
    def key(self) -> str:
        """Marker of the installed replacement."""
        return f"{self.target}={self.replacement}"


# Of two replacements of one function, the later one is the outer one.
PATCHES = (
    Patch(
        "fairseq.checkpoint_utils.load_checkpoint_to_cpu",
        "checkpoints.loading:reading_safetensors",
        "read weights in safetensors",
    ),
    Patch(
        "fairseq.checkpoint_utils.load_checkpoint",
        "checkpoints.initialization:checking_first",
        "check the initial checkpoint before the first update",
    ),
    Patch(
        "fairseq.checkpoint_utils.load_checkpoint",
        "training.curves:restoring_metrics",
        "a resumed run has complete curves",
    ),
    Patch(
        "fairseq.trainer.Trainer.save_checkpoint",
        "training.curves:saving_metrics",
        "a resumed run has complete curves",
    ),
    Patch(
        "fairseq.trainer.Trainer.__init__",
        "training.precision:checking_flags",
        "refuse --fp16 and --bf16 where they would crash",
    ),
    Patch(
        "fairseq.data.data_utils.load_indexed_dataset",
        "tasks.datasets:comparing_checksums",
        "compare data with their recorded checksums",
    ),
    Patch(
        "fairseq.data.iterators.EpochBatchIterator.first_batch",
        "tasks.datasets:requiring_batches",
        "a clear error for data without a batch",
    ),
    Patch(
        "fairseq.trainer.Trainer.train_step",
        "training.termination:stopping_at_divergence",
        "abort on NaN or on a huge loss",
    ),
    Patch(
        "fairseq.trainer.Trainer.train_step",
        "training.distributed:without_fillers",
        "count the sentences of a worker's last batches",
    ),
    Patch(
        "fairseq.trainer.Trainer._set_seed",
        "training.distributed:seed_apart",
        "each worker draws its own dropout",
    ),
    Patch(
        "fairseq.distributed.LegacyDistributedDataParallel.all_reduce_grads",
        "training.distributed:without_unused",
        "leave unused parameters without a gradient",
    ),
    Patch(
        "fairseq.distributed.utils.call_main",
        "training.distributed:starting_workers",
        "multi-process training on CPU, and one error for all workers",
    ),
    Patch(
        "fairseq.tasks.masked_lm.get_whole_word_mask",
        "tasks.language_modeling:finding_word_beginnings",
        "--mask-whole-words with SentencePiece vocabularies",
    ),
    Patch(
        "fairseq.tasks.masked_lm.MaskedLMTask.args",
        "tasks.language_modeling:giving_arguments",
        "--mask-whole-words reads an attribute that the task lacks",
    ),
)


def install() -> None:
    """Put every replacement in place that is not there yet."""
    for patch in PATCHES:
        owner, name = locate(patch.target)
        current = vars(owner).get(name) if isinstance(owner, type) else getattr(owner, name)
        function = current.fget if isinstance(current, property) else current
        if is_installed(patch, function):
            continue
        module, _, maker = patch.replacement.partition(":")
        made = getattr(importlib.import_module(f"{__package__}.{module}"), maker)(function)
        setattr(made, MARKER, patch.key)
        in_property = isinstance(current, property) or current is None
        setattr(owner, name, property(made) if in_property else made)


def is_installed(patch: Patch, function: Callable[..., Any] | None) -> bool:
    """Whether the function, or one that it wraps, is this patch."""
    return any(vars(inner).get(MARKER) == patch.key for inner in chain(function))


def chain(function: Any) -> Iterator[Any]:
    """The function, the one it wraps (`__wrapped__`), and so on."""
    seen: set[int] = set()
    while function is not None and id(function) not in seen:
        seen.add(id(function))
        if hasattr(function, "__dict__"):
            yield function
        function = getattr(function, "__wrapped__", None)


def locate(target: str) -> tuple[Any, str]:
    """The module or class that holds a target, and the target's name there."""
    path, _, name = target.rpartition(".")
    try:
        return importlib.import_module(path), name
    except ModuleNotFoundError:
        module, _, owner = path.rpartition(".")
        return getattr(importlib.import_module(module), owner), name


def table() -> str:
    """The table as text: target, reason, replacement, version, whether it is installed."""
    rows = [("fairseq's function", "reason", "replacement", "written for", "installed")]
    for patch in PATCHES:
        owner, name = locate(patch.target)
        current = getattr(owner, name, None)
        function = current.fget if isinstance(current, property) else current
        installed = "yes" if is_installed(patch, function) else "no"
        rows.append((patch.target, patch.reason, patch.replacement, patch.version, installed))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    rows.insert(1, tuple("-" * width for width in widths))
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    recognized = f"An installed replacement is recognized by its attribute {MARKER}, through __wrapped__."
    return "\n".join([*lines, "", recognized])


@report_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of the replaced functions."""
    Parser(
        prog="python -m fairseq_plugin.compat",
        description="List the functions of fairseq that the plugin replaces, with the reason and the\n"
        "version that each replacement was written against.",
        examples="example:\n  python -m fairseq_plugin.compat",
    ).parse_args(arguments)
    print(table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
