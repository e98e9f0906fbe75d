"""The functions and registry entries of fairseq that this plugin replaces, in one table.

`install` is called when the package is imported; no other module of the plugin assigns to a name of fairseq.
A replacement is a decorator of the function it replaces (`original -> function`) and is defined in the module
of its topic. Installed replacements have a marker. `install` searches the chain of wrapped functions
(`__wrapped__`) for it, so that each patch is installed once, even if another plugin has wrapped the same
function.

fairseq imports its tasks before the plugin. What they need on Python 3.14 is therefore not replaced but
changed in fairseq's source when it is installed (`common.install_fairseq.CHANGES`). The table lists both.

    python -m roberta_small.fairseq_plugin.compat
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from roberta_small.common.cli import Parser
from roberta_small.common.errors import report_errors
from roberta_small.common.install_fairseq import CHANGES, VERSION
from roberta_small.common.tables import markdown

MARKER = "_fairseq_plugin_patch"
"""Attribute of an installed replacement; its value is `Patch.key`."""


@dataclass(frozen=True)
class Patch:
    """One replaced function: a module's function, a method, the getter of a property, or a registry entry."""

    target: str
    """Qualified name in fairseq; MODULE.REGISTRY[NAME] for an entry of a registry."""
    replacement: str
    """MODULE:DECORATOR in this package; DECORATOR(original) returns the replacement."""
    reason: str
    version: str = VERSION

    @property
    def key(self) -> str:
        """The marker of the installed replacement."""
        return f"{self.target}={self.replacement}"


ARCHITECTURES = ("roberta", "roberta_prenorm", "roberta_base", "roberta_large")
"""fairseq's architectures that the plugin's model can build."""

# If a function has two replacements, the later one is called first.
PATCHES = (
    Patch(
        "fairseq.dataclass.utils.initialize",
        "library_warnings:initializing",
        "Hydra's name of this function without a deprecation warning",
    ),
    Patch(
        "fairseq.dataclass.utils.compose",
        "library_warnings:composing",
        "Hydra's name of this function without a deprecation warning",
    ),
    Patch(
        "fairseq.checkpoint_utils.load_checkpoint_to_cpu",
        "checkpoints.loading:reading_safetensors",
        "load checkpoints in safetensors format",
    ),
    Patch(
        "fairseq.checkpoint_utils.load_checkpoint",
        "checkpoints.initialization:checking_initial_checkpoint",
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
        "a clear error for --fp16 and --bf16 on devices where they crash",
    ),
    Patch(
        "fairseq.trainer.Trainer.__init__",
        "training.checks:checking_settings",
        "a clear error for a wrong --best-checkpoint-metric or --class-weights before the first update",
    ),
    Patch(
        "fairseq.trainer.Trainer.__init__",
        "training.settings:remembering_settings",
        "settings are looked up once: omegaconf would take a part of each update",
    ),
    Patch(
        "fairseq.data.data_utils.load_indexed_dataset",
        "tasks.datasets:verifying_checksums",
        "compare data files with their recorded checksums",
    ),
    Patch(
        "fairseq.data.iterators.EpochBatchIterator.first_batch",
        "tasks.datasets:requiring_batches",
        "a clear error for data without a batch",
    ),
    Patch(
        "fairseq.data.iterators.EpochBatchIterator.__init__",
        "tasks.datasets:forking_workers",
        "processes of --num-workers start by fork, also on Python 3.14",
    ),
    Patch(
        "fairseq.tasks.FairseqTask.get_batch_iterator",
        "tasks.batches:describing_batches",
        "lengths and positions are computed while batches are loaded: a GPU would wait for them",
    ),
    Patch(
        "fairseq.tasks.FairseqTask.train_step",
        "training.graphs:replaying",
        "on a GPU, forward and backward pass of a classifier are one CUDA graph, the update another one",
    ),
    Patch(
        "fairseq.trainer.Trainer.clip_grad_norm",
        "training.late_logging:keeping_norm",
        "a GPU does not wait until the gradient norm is read",
    ),
    Patch(
        "fairseq.trainer.Trainer._reduce_and_log_stats",
        "training.late_logging:logging_late",
        "on a GPU, log an update when the next one has been launched",
    ),
    Patch(
        "fairseq.logging.metrics.get_smoothed_values",
        "training.late_logging:logging_first",
        "metrics are those of all updates",
    ),
    Patch(
        "fairseq.trainer.Trainer.train_step",
        "training.termination:stopping_at_divergence",
        "abort on NaN or on a loss above 1e4",
    ),
    Patch(
        "fairseq.trainer.Trainer.train_step",
        "training.distributed:skipping_empty_batches",
        "count the sentences of a worker's last batches",
    ),
    Patch(
        "fairseq.trainer.Trainer.train_step",
        "training.threads:following_load",
        "fewer CPU threads while other processes use the cores",
    ),
    Patch(
        "fairseq.trainer.Trainer._set_seed",
        "training.distributed:seeding_each_worker",
        "different dropout masks for each worker",
    ),
    Patch(
        "fairseq.distributed.LegacyDistributedDataParallel.all_reduce_grads",
        "training.distributed:keeping_missing_gradients",
        "leave unused parameters without a gradient",
    ),
    Patch(
        "fairseq.distributed.utils.call_main",
        "training.distributed:starting_workers",
        "multi-process training on CPU, one error for all workers, and the number of threads",
    ),
    Patch(
        "fairseq.tasks.masked_lm.get_whole_word_mask",
        "tasks.language_modeling:marking_word_starts",
        "--mask-whole-words with SentencePiece vocabularies",
    ),
    Patch(
        "fairseq.tasks.masked_lm.MaskedLMTask.__init__",
        "tasks.language_modeling:setting_args",
        "--mask-whole-words reads the attribute `args`, which the task does not set",
    ),
    *(
        Patch(
            f"fairseq.models.ARCH_MODEL_REGISTRY[{name}]",
            "models.fairseq_names:with_plugin_flags",
            f"--arch {name} on the plugin's model, with its flags",
        )
        for name in ARCHITECTURES
    ),
    *(
        Patch(
            f"fairseq.models.ARCH_CONFIG_REGISTRY[{name}]",
            "models.fairseq_names:with_positions",
            f"--arch {name} has 512 positions with --task sentence_classification",
        )
        for name in ARCHITECTURES
    ),
)


def install() -> None:
    """Install every replacement that is not installed yet."""
    for patch in PATCHES:
        owner, name = locate(patch.target)
        current = stored(owner, name)
        function = function_of(current)
        if is_installed(patch, function):
            continue
        module, _, decorator = patch.replacement.partition(":")
        replacement = getattr(importlib.import_module(f"{__package__}.{module}"), decorator)(function)
        setattr(replacement, MARKER, patch.key)
        if isinstance(owner, dict):
            owner[name] = replacement
        else:
            setattr(owner, name, property(replacement) if isinstance(current, property) else replacement)


def stored(owner: Any, name: str) -> Any:
    """What a module, a class or a registry contains under a name."""
    if isinstance(owner, dict):
        return owner[name]
    return vars(owner)[name] if isinstance(owner, type) else getattr(owner, name)


def function_of(value: Any) -> Callable[..., Any]:
    """The getter of a property; any other value itself."""
    if isinstance(value, property):
        assert value.fget is not None
        return value.fget
    return value


def is_installed(patch: Patch, function: Callable[..., Any]) -> bool:
    """Whether the function, or one that it wraps, is this replacement."""
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
    """The module, class or registry that contains a target, and the target's name in it."""
    if target.endswith("]"):
        registry, _, name = target.removesuffix("]").partition("[")
        module, _, attribute = registry.rpartition(".")
        return getattr(importlib.import_module(module), attribute), name
    path, _, name = target.rpartition(".")
    try:
        return importlib.import_module(path), name
    except ModuleNotFoundError:
        module, _, owner = path.rpartition(".")
        return getattr(importlib.import_module(module), owner), name


def table() -> str:
    """The table in Markdown: target, reason, replacement, version, whether it is installed."""
    columns = ("fairseq's function", "reason", "replacement", "written for", "installed")
    rows = []
    for patch in PATCHES:
        installed = "yes" if is_installed(patch, function_of(stored(*locate(patch.target)))) else "no"
        rows.append((patch.target, patch.reason, patch.replacement, patch.version, installed))
    for change in CHANGES:
        python = ".".join(map(str, change.since))
        written = f"{VERSION}, Python {python}"
        rows.append(
            (
                change.target,
                change.reason,
                "roberta_small.common.install_fairseq:CHANGES",
                written,
                change.state,
            )
        )
    note = f"An installed replacement is recognized by its attribute {MARKER}, through __wrapped__.\n"
    note += "A change of the source (CHANGES) is recognized by its text in fairseq's file."
    return f"{markdown(columns, rows, 'l')}\n{note}"


@report_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of replaced functions."""
    Parser(
        prog="python -m roberta_small.fairseq_plugin.compat",
        description="List the functions of fairseq that the plugin replaces, with the reason and the\n"
        "version that each replacement was written against.",
        examples="example:\n  python -m roberta_small.fairseq_plugin.compat",
    ).parse_args(arguments)
    print(table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
