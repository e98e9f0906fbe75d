"""The weights that a run starts from: random, or those of a checkpoint that exists and fits.

If `--restore-file` does not exist, stock fairseq logs this and trains from random weights; if the checkpoint
does not fit the model, it fails while loading. The plugin checks both before the first update and reports the
differences. The classification head of a checkpoint that has the classes of the data in another order is
loaded in the order of the data, that of a regression in the scaling of the data, and one for other classes or
another kind of labels is not loaded.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary
from fairseq.file_io import PathManager
from fairseq.models import BaseFairseqModel
from fairseq.models.roberta.model import RobertaModel
from fairseq.trainer import Trainer
from torch import Tensor, nn

from roberta_small.common.errors import UserError
from roberta_small.common.families import SECOND
from roberta_small.common.label_kinds import Labels
from roberta_small.common.run import LAST_CHECKPOINT
from roberta_small.fairseq_plugin.checkpoints import architecture
from roberta_small.fairseq_plugin.checkpoints.architecture import SWITCHES, Head, head_of
from roberta_small.fairseq_plugin.checkpoints.loading import (
    LM_HEAD,
    bare_state,
    load_checkpoint,
    reading_instead,
)
from roberta_small.fairseq_plugin.models.roberta import (
    CLASSIFICATION_HEADS,
    LINEAR,
    RobertaSmall,
    heads_in,
)
from roberta_small.fairseq_plugin.tasks.sentence_classification import (
    SentenceClassificationTask,
    load_dictionary,
)

logger = logging.getLogger(__name__)
OPTIONAL = (LM_HEAD, SECOND)
"""Beginnings of the names of weights that initial weights may lack."""
MAX_DIFFERENCES = 3
"""Differences between checkpoint and model that an error message lists."""


def checking_initial_checkpoint(original: Callable[..., Any], cfg: Any, trainer: Any, **kwargs: Any) -> Any:
    """Replace `checkpoint_utils.load_checkpoint`: check the initial checkpoint before the first update."""
    if not isinstance(trainer, Trainer):  # fairseq's own tests call it with mocks
        return original(cfg, trainer, **kwargs)
    flag, name = initial_checkpoint(cfg, trainer.checkpoint_suffix)
    state = check(cfg, trainer, flag, name)
    with contextlib.ExitStack() as stack:
        stack.enter_context(fitted_head(trainer.get_model(), trainer.task, state, name))
        if state is not None and name is not None and not keeps_optimizer(cfg, flag):
            # fairseq would look up criterion, task, optimizer and schedule of the old run, which may belong
            # to another program. It gets the weights alone.
            upgraded = dict(state["model"])
            trainer.get_model().upgrade_state_dict(upgraded)
            weights = state["model"] | missing_weights(upgraded, trainer.get_model(), OPTIONAL)
            others = {"last_optimizer_state": None, "criterion": trainer.get_criterion().state_dict()}
            bare = bare_state(weights, {"model": None}) | others
            stack.enter_context(reading_instead(local_path(name), bare))
        return original(cfg, trainer, **kwargs)


def check(cfg: Any, trainer: Trainer, flag: str, name: str | None) -> dict[str, Any] | None:
    """Check the `initial_checkpoint` that fairseq is about to load, and return it.

    Returns None for random weights. Raises `UserError` for a checkpoint that is missing, unreadable, or does
    not fit criterion, dictionary, architecture or model.
    """
    model, task = trainer.get_model(), trainer.task
    if name is None:
        logger.info("initialization: random weights")
        return None
    path = local_path(name)
    if not path.is_file():
        modules = (type(model).__module__, type(task).__module__)
        if flag == "--restore-file" and not any("roberta_small.fairseq_plugin." in name for name in modules):
            return None  # fairseq warns and starts from random weights, which its own commands rely on
        raise UserError(
            f"{flag} {name}: no such checkpoint; correct the path, "
            "or omit the flag to start from random weights"
        )
    state = load_checkpoint(path)
    resumes = keeps_optimizer(cfg, flag)
    if resumes and state.get("last_optimizer_state") is not None:
        history = state.get("optimizer_history") or [{}]
        theirs, criterion = history[-1].get("criterion_name"), type(trainer.get_criterion()).__name__
        if theirs != criterion:
            raise UserError(
                f"{flag} {path} was trained with {theirs}, this run trains with {criterion}; to load only "
                "its weights, add --reset-optimizer --reset-dataloader --reset-meters --reset-lr-scheduler"
            )
    require_fit(flag, path, state, model, task, keeps_optimizer=resumes)
    logger.info("initialization: weights of %s", path)
    return state


def require_fit(
    flag: str,
    path: Path,
    state: dict[str, Any],
    model: BaseFairseqModel,
    task: Any,
    *,
    keeps_optimizer: bool = False,
) -> None:
    """Raise `UserError` unless a checkpoint has the dictionary and architecture of a task and its model."""
    check_dictionary(path, getattr(task, "source_dictionary", None))
    check_architecture(f"{flag} {path}", path, state, model, keeps_optimizer=keeps_optimizer)
    check_keys(path, state["model"], model)


def load_initial(model: BaseFairseqModel, task: Any, path: Path) -> None:
    """Give a model the weights that fairseq-train would start from; raises `UserError` as `require_fit`."""
    state = load_checkpoint(path, optimizer=False)
    require_fit("initial checkpoint", path, state, model, task)
    weights = dict(state["model"])
    model.upgrade_state_dict(weights)
    with fitted_head(model, task, state, path):
        model.load_state_dict(weights | missing_weights(weights, model, OPTIONAL))


def keeps_optimizer(cfg: Any, flag: str) -> bool:
    """Whether the run continues with the optimizer of the checkpoint, and so with the rest of its state."""
    return flag != "--finetune-from-model" and not cfg.reset_optimizer


def missing_weights(
    weights: Mapping[str, Tensor], model: nn.Module, prefixes: str | tuple[str, ...]
) -> dict[str, Tensor]:
    """The weights of `model` whose names begin with one of `prefixes` and that `weights` does not contain.

    A weight that is tied to others is one of them: the matrix of the LM head is that of the embeddings.
    """
    ours = model.state_dict()
    tied = {weight.data_ptr(): weights[name] for name, weight in ours.items() if name in weights}
    return {
        name: tied.get(weight.data_ptr(), weight).detach().cpu().clone()
        for name, weight in ours.items()
        if name.startswith(prefixes) and name not in weights
    }


@contextlib.contextmanager
def fitted_head(
    model: BaseFairseqModel, task: Any, state: dict[str, Any] | None, path: object
) -> Iterator[None]:
    """A context in which the head of a checkpoint of `path` gets the labels of the data (`fit_head`)."""
    theirs = head_of(state, path) if state and isinstance(task, SentenceClassificationTask) else None
    if state is None or theirs is None:
        yield
        return
    name = task.cfg.classification_head_name
    head, place = model.classification_heads[name], f"{CLASSIFICATION_HEADS}{name}."
    ours = replace(task.labels, classes=tuple(task.class_names))  # only the classes of the data
    stored = {key.removeprefix(place) for key in state["model"] if key.startswith(place)}
    if stored != set(head.state_dict()):
        yield  # of another name or form (--head): not loaded
        return

    def fit(module: nn.Module, weights: dict[str, Tensor], prefix: str, *unused: Any) -> None:
        own = {f"{prefix}{name}": weight for name, weight in head.state_dict().items()}
        fit_head(weights, own, theirs, ours)

    handle = head.register_load_state_dict_pre_hook(fit)
    try:
        yield
    finally:
        handle.remove()


def fit_head(weights: dict[str, Tensor], own: Mapping[str, Tensor], theirs: Head, ours: Labels) -> None:
    """Give a head the labels `ours` in place; `weights` are those of a checkpoint with the head `theirs`.

    Label dictionaries are sorted by frequency, so the same classes can have another order in other data: the
    rows of the output layer are then reordered (`architecture.class_rows`). The output layer of a regression
    is rescaled, so that it predicts the same numbers. A head for other classes or for another kind of labels
    is replaced by `own`, the new weights under the same names, with a warning. Nothing is changed if the
    names of the classes are not recorded.
    """
    present = {name: weight for name, weight in own.items() if name in weights}
    if not present:
        return
    output = [name for name in present if ".out_proj." in name]
    names, classes = theirs.class_names, ", ".join(ours.classes)
    if theirs.kind != ours.kind.name:
        weights.update((name, weight.clone()) for name, weight in present.items())
        logger.warning(
            "classification head not loaded, because it was trained on another kind of labels: the new head "
            "has random weights"
        )
    elif not ours.kind.has_classes:
        old, new = theirs.scaling, ours.scaling
        if old == new:
            return
        for name in output:
            weights[name] = weights[name] * (old.scale / new.scale)
            if name.endswith(".bias"):
                weights[name] = weights[name] + (old.mean - new.mean) / new.scale
        logger.info("classification head: numbers rescaled to mean %.6g and scale %.6g", new.mean, new.scale)
    elif names and len(names) == len(ours.classes):
        rows_K = architecture.class_rows(names, ours.classes)
        if rows_K is None:
            weights.update((name, weight.clone()) for name, weight in present.items())
            logger.warning(
                "classification head for %s not loaded, because the data have the classes %s: the new head "
                "has random weights", ", ".join(names), classes,
            )  # fmt: skip
            return
        for name in output:
            if len(weights[name]) == len(rows_K):
                weights[name] = weights[name][rows_K]
        if rows_K != sorted(rows_K):
            logger.info("classification head: classes reordered to %s, as in the data", classes)


def initial_checkpoint(cfg: Any, suffix: str = "") -> tuple[str, str | None]:
    """The flag that selects the checkpoint a run starts from, and its path; None for random weights.

    The order is that of `checkpoint_utils.load_checkpoint`: `--restore-file`, the run's own last checkpoint,
    `--continue-once`, `--finetune-from-model`. `suffix` is `Trainer.checkpoint_suffix`
    (`--checkpoint-suffix`, or the shard of this worker); it belongs to the names of the first two.
    """
    if cfg.restore_file != LAST_CHECKPOINT:
        return "--restore-file", cfg.restore_file.replace(".pt", f"{suffix}.pt")
    if (last := last_checkpoint(cfg, suffix)) is not None:
        return "--restore-file", str(last)
    if getattr(cfg, "continue_once", None) is not None:
        return "--continue-once", cfg.continue_once
    return "--finetune-from-model", cfg.finetune_from_model or None


def last_checkpoint(cfg: Any, suffix: str = "") -> Path | None:
    """The last checkpoint in `--save-dir`, from which an interrupted run resumes, if it exists."""
    if cfg.save_dir is None:
        return None
    path = Path(cfg.save_dir) / LAST_CHECKPOINT.replace(".pt", f"{suffix}.pt")
    return path if path.is_file() else None


def local_path(path: str) -> Path:
    """The local file of a path or URL; one that `PathManager`, with iopath, cannot resolve stays as it is."""
    try:
        return Path(PathManager.get_local_path(str(path)))
    except (OSError, ValueError, RuntimeError, AssertionError):
        return Path(path)


def check_architecture(
    source: str, path: Path, state: dict[str, Any], model: BaseFairseqModel, *, keeps_optimizer: bool
) -> None:
    """Raise `UserError` if the network of the checkpoint is not that of the model.

    `source` is the checkpoint as error messages name it, with its flag. Models that are no RoBERTa are not
    checked, and checkpoints of other architectures are left to `check_keys`. If the checkpoint has more
    positions than the model, this is logged; with its optimizer state it is an error.
    """
    name = architecture.arch_name(architecture.model_arguments(state))
    if not isinstance(model, RobertaModel) or (name is not None and not architecture.is_roberta(name)):
        return
    if name is None:
        what = "whether heads and activation are those of the run is unknown"
        logger.warning("%s records no configuration: %s", source, what)
        return
    theirs, ours = architecture.of_state(path, state), architecture.of_arguments(model.args)
    names = theirs.differences(ours)
    if names:
        pairs = [f"{theirs.describe(name)} there, {ours.describe(name)} in this run" for name in names]
        words = " ".join(theirs.flags_from(ours))
        off = [flag for name, flag in SWITCHES.items() if name in names and not getattr(theirs, name)]
        without = f" without {' and '.join(off)}" if off else ""
        raise UserError(f"{source} has another architecture: {'; '.join(pairs)}; use {words}{without}")
    if theirs.head == LINEAR and not isinstance(model, RobertaSmall):  # which fairseq cannot read
        raise UserError(
            f"{source} has --head {LINEAR}, which fairseq's own model does not have; use --task "
            f"sentence_classification, or add --head {LINEAR}"
        )
    if theirs.positions is None or ours.positions is None or theirs.positions == ours.positions:
        return
    resumes = keeps_optimizer and state.get("last_optimizer_state") is not None
    if theirs.positions < ours.positions or resumes:
        raise UserError(
            f"{source} has {theirs.positions} positions, this run has --max-positions {ours.positions}; use "
            f"--max-positions {theirs.positions}"
        )
    if isinstance(model, RobertaSmall):  # fairseq's own model cannot load them: `check_keys`
        counts = theirs.positions, ours.positions
        logger.info("%s has %d positions: the first %d are used (--max-positions)", path, *counts)


def check_keys(path: Path, weights: dict[str, Tensor], model: BaseFairseqModel) -> None:
    """Compare names and shapes of the weights with the model's; raises `UserError` if they differ.

    Missing weights of `OPTIONAL` are allowed, and a missing classification head, which is logged.
    """
    expected = model.state_dict()
    if not heads_in(weights) and heads_in(expected):
        logger.info("%s has no classification head: the new one starts from random weights", path)
    weights = dict(weights)
    model.upgrade_state_dict(weights)
    for key in expected:
        rows = len(weights[key]) if key.endswith(".embed_tokens.weight") and key in weights else 0
        if rows and rows != len(expected[key]):
            raise UserError(
                f"{path}: vocabulary of {rows:,}, but the dictionary of the data has {len(expected[key]):,} "
                "entries, <mask> included; prepare the data with the checkpoint's dictionary"
            )
    differences = [
        f"{key} is {tuple(weights[key].shape)} in the file and {tuple(expected[key].shape)} in the model"
        for key in expected
        if key in weights and weights[key].shape != expected[key].shape
    ]
    missing = (key for key in expected if key not in weights and not key.startswith(OPTIONAL))
    differences += [f"{key} is missing" for key in missing]
    differences += [f"{key} is not part of the model" for key in weights if key not in expected]
    if differences:
        hidden = len(differences) - MAX_DIFFERENCES
        more = f", and {hidden} more" if hidden > 0 else ""
        raise UserError(
            f"{path} does not fit the model: {'; '.join(differences[:MAX_DIFFERENCES])}{more}; "
            "use the --arch, the sizes and the dictionary it was trained with"
        )


def check_dictionary(path: Path, dictionary: Dictionary | None) -> None:
    """Raise `UserError` if the data's dictionary differs from a `dict.txt` next to the checkpoint."""
    beside = path.parent / "dict.txt"
    if dictionary is None or not beside.is_file():
        return
    theirs, ours = (
        [symbol for symbol in found.symbols if symbol != "<mask>"]  # tasks add it themselves
        for found in (load_dictionary(beside), dictionary)
    )
    if theirs == ours:
        return
    at = next((i for i, pair in enumerate(zip(theirs, ours, strict=False)) if pair[0] != pair[1]), None)
    place = (
        f"{len(theirs)} entries there, {len(ours)} in the data"
        if at is None
        else f"entry {at} is {theirs[at]!r} there and {ours[at]!r} in the data"
    )
    raise UserError(
        f"{beside}: not the dictionary of the data ({place}); write the data folder again with "
        f"--dict {beside}"
    )
