"""The functions and registry entries of fairseq that this plugin replaces, in one table.

`install` is called when the package is imported; no other module of the plugin assigns to a name of fairseq.
The first argument of a replacement is the function that it replaces; of a class, it makes another class. It
is defined in the module of its topic, and its docstring begins with the reason. Installed replacements have a
marker. `install` searches the chain of wrapped functions (`__wrapped__`) for it, so that each patch is
installed once, even if another plugin has wrapped the same function.

fairseq imports its tasks before the plugin. What they need on Python 3.14 is therefore not replaced but
changed in fairseq's source when it is installed (`common.install_fairseq.CHANGES`). The table lists both.

    python -m roberta_small.fairseq_plugin.compat
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from roberta_small.common.cli import Parser
from roberta_small.common.install_fairseq import CHANGES, VERSION
from roberta_small.common.tables import markdown

MARKER = "_fairseq_plugin_patch"
"""Attribute of an installed replacement; its value is `Patch.key`."""


@dataclass(frozen=True)
class Patch:
    """One replaced function: a module's function, a method, the getter of a property, or a registry entry."""

    target: str  # qualified name in fairseq; MODULE.REGISTRY[NAME] for an entry of a registry
    replacement: str  # MODULE:FUNCTION in this package; it gets the original and the arguments of the call

    @property
    def key(self) -> str:
        """The marker of the installed replacement."""
        return f"{self.target}={self.replacement}"

    @property
    def function(self) -> Callable[..., Any]:
        """The replacement."""
        return resolve_name(f"{__package__}.{self.replacement}")

    @property
    def reason(self) -> str:
        """From the first line of the docstring: "Replace NAME: REASON."."""
        return (self.function.__doc__ or "").partition("\n")[0].partition(": ")[2].rstrip(".")


ARCHITECTURES = ("roberta", "roberta_prenorm", "roberta_base", "roberta_large")
"""fairseq's architectures that the plugin's model can build."""
MODELS = "fairseq.models.ARCH_MODEL_REGISTRY"
DEFAULTS = "fairseq.models.ARCH_CONFIG_REGISTRY"

# If a function has two replacements, the later one is called first.
PATCHES = (
    Patch("fairseq.dataclass.utils.initialize", "library_warnings:initializing"),
    Patch("fairseq.dataclass.utils.compose", "library_warnings:composing"),
    Patch("fairseq.checkpoint_utils.load_checkpoint_to_cpu", "checkpoints.loading:reading_safetensors"),
    Patch(
        "fairseq.checkpoint_utils.load_checkpoint", "checkpoints.initialization:checking_initial_checkpoint"
    ),
    Patch("fairseq.checkpoint_utils.load_checkpoint", "training.curves:restoring_metrics"),
    Patch("fairseq.trainer.Trainer.save_checkpoint", "training.curves:saving_metrics"),
    Patch("fairseq.trainer.Trainer.__init__", "training.precision:checking_flags"),
    Patch("fairseq.trainer.Trainer.__init__", "training.settings:checking_settings"),
    Patch("fairseq.trainer.Trainer.__init__", "training.settings:remembering_settings"),
    Patch("fairseq.data.data_utils.load_indexed_dataset", "tasks.datasets:verifying_checksums"),
    Patch("fairseq.data.TokenBlockDataset._build_slice_indices", "tasks.datasets:breaking_at_sentences"),
    Patch("fairseq.data.iterators.EpochBatchIterator.first_batch", "tasks.datasets:requiring_batches"),
    Patch("fairseq.data.iterators.EpochBatchIterator.__init__", "tasks.datasets:forking_workers"),
    Patch("fairseq.tasks.FairseqTask.get_batch_iterator", "tasks.batches:describing_batches"),
    Patch("fairseq.tasks.FairseqTask.train_step", "training.graphs:replaying"),
    Patch("fairseq.trainer.Trainer.clip_grad_norm", "training.late_logging:keeping_norm"),
    Patch("fairseq.trainer.Trainer._reduce_and_log_stats", "training.late_logging:logging_late"),
    Patch("fairseq.logging.metrics.get_smoothed_values", "training.late_logging:logging_first"),
    Patch("fairseq.trainer.Trainer.train_step", "training.termination:stopping_at_divergence"),
    Patch("fairseq.trainer.Trainer.train_step", "training.distributed:skipping_empty_batches"),
    Patch("fairseq.trainer.Trainer.train_step", "training.threads:following_load"),
    Patch("fairseq.trainer.Trainer._set_seed", "training.distributed:seeding_each_worker"),
    Patch(
        "fairseq.distributed.LegacyDistributedDataParallel.all_reduce_grads",
        "training.distributed:keeping_missing_gradients",
    ),
    Patch("fairseq.distributed.utils.call_main", "training.distributed:starting_workers"),
    Patch("fairseq.tasks.masked_lm.get_whole_word_mask", "tasks.language_modeling:marking_word_starts"),
    Patch("fairseq.tasks.masked_lm.MaskedLMTask.__init__", "tasks.language_modeling:setting_args"),
    *(Patch(f"{MODELS}[{name}]", "models.roberta:with_plugin_flags") for name in ARCHITECTURES),
    *(Patch(f"{DEFAULTS}[{name}]", "models.roberta:with_positions") for name in ARCHITECTURES),
)


def install() -> None:
    """Install every replacement that is not installed yet."""
    for patch in PATCHES:
        owner, name = locate(patch.target)
        current = stored(owner, name)
        function = function_of(current)
        if is_installed(patch, function):
            continue
        is_class = isinstance(owner, dict) and isinstance(current, type)
        replacement = patch.function(function) if is_class else calling(patch.function, function)
        setattr(replacement, MARKER, patch.key)
        if isinstance(owner, dict):
            owner[name] = replacement
        else:
            wrap = type(current) if isinstance(current, property | staticmethod) else lambda found: found
            setattr(owner, name, wrap(replacement))


def calling(ours: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the signature of `original` that calls `ours` with `original` and the arguments."""

    @functools.wraps(original, updated=())
    def replacement(*args: Any, **kwargs: Any) -> Any:
        return ours(original, *args, **kwargs)

    return replacement


def stored(owner: Any, name: str) -> Any:
    """What a module, a class or a registry contains under a name."""
    if isinstance(owner, dict):
        return owner[name]
    return vars(owner)[name] if isinstance(owner, type) else getattr(owner, name)


def function_of(value: Any) -> Callable[..., Any]:
    """The getter of a property, the function of a static method; any other value itself."""
    if isinstance(value, property):
        assert value.fget is not None
        return value.fget
    return value.__func__ if isinstance(value, staticmethod) else value


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
    owner, _, name = target.removesuffix("]").rpartition("[" if target.endswith("]") else ".")
    return resolve_name(owner), name


def table() -> str:
    """The table in Markdown: target, reason, replacement, version, whether it is installed."""
    columns = ("fairseq's function", "reason", "replacement", "written for", "installed")
    rows = []
    for patch in PATCHES:
        installed = "yes" if is_installed(patch, function_of(stored(*locate(patch.target)))) else "no"
        rows.append((patch.target, patch.reason, patch.replacement, VERSION, installed))
    where = "roberta_small.common.install_fairseq:CHANGES"
    for change in CHANGES:
        rows.append((change.target, change.reason, where, f"{VERSION}, Python {change.python}", change.state))
    note = f"An installed replacement is recognized by its attribute {MARKER}, through __wrapped__.\n"
    note += "A change of the source (CHANGES) is recognized by its text in fairseq's file."
    return f"{markdown(columns, rows, 'l')}\n{note}"


if __name__ == "__main__":
    Parser(description="List what the plugin replaces in fairseq, with the reasons.").parse_args()
    print(table())
