"""LoRA of a causal language model on questions and answers.

The defaults are those of the published reports: BLOOM-560m, rank 16 on `query_key_value`, 80 updates. With
bitsandbytes and a GPU the base model is loaded in 4 bits (QLoRA). Some questions are held out: the perplexity
of their answers is measured before and after training. Some answers are written by the base and by the
trained model. Writes OUT/lora-causal/NAME/seedN:

    manifest.json      as for every run; also trainable_parameters, parameters, peak_memory_bytes, perplexity
    adapter/           adapter_model.safetensors and adapter_config.json
    merged/            with --merge: a model folder without adapters
    results.json       parameters, perplexities, answers before and after training
    tensorboard/, train.log

A finished run is not trained again: --ask and --new-tokens generate answers with its stored adapter.
An interrupted run starts from scratch. --sample DIR writes a small BLOOM and questions to try the command.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_small.common.cli import SettingsParser, fraction, integer, positive, positive_number
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_write, sha256, shown_path
from roberta_small.experiments.inputs.files import fingerprint_data, require_writable
from roberta_small.experiments.methods import Command, Method
from roberta_small.experiments.methods.lora.settings import LoraSettings, add_lora, lora_settings
from roberta_small.experiments.methods.transformers.run_folder import PACKAGES
from roberta_small.experiments.recipe.recipe import Recipe
from roberta_small.experiments.settings import MAX_SEED, Settings, add_execution, execution
from roberta_small.experiments.sweep import PACKAGES as FAIRSEQ
from roberta_small.experiments.sweep import Sweep, Training, run_below

DEFAULTS = LoraSettings(rank=16, alpha=32, dropout=0.05, target_modules=("query_key_value",))
MODEL = "bigscience/bloom-560m"
ADAPTER, MERGED, RESULTS = "adapter", "merged", "results.json"
RECORDED = ("precision", "trainable_parameters", "parameters", "peak_memory_bytes", "perplexity")
"""Keys of results.json that are also in the manifest."""
NEW_TOKENS = 200
"""Maximum length of an answer without --new-tokens."""
QUESTIONS = 3
"""Number of held-out questions to answer without --ask."""
EXAMPLES = """examples:
  roberta-small download bloom --out bloom
  roberta-small lora-causal --model bloom --data faq.json --merge --ask "How can I track my order?"
  roberta-small lora-causal --sample demo/faq
  roberta-small lora-causal --model demo/faq/bloom --data demo/faq/faq.json --answer-only --lr 5e-3
"""
TRAINING: tuple[tuple[str, Any, Any, str], ...] = (
    ("steps", positive, 80, "updates"),
    ("batch-size", positive, 1, "pairs in a batch"),
    ("accumulation", positive, 4, "batches per update"),
    ("lr", positive_number, 2e-4, "learning rate, cosine decay to 0"),
    ("warmup-share", fraction, 0.05, "fraction of the updates with warm-up"),
    ("max-length", positive, 512, "maximum number of tokens per question-answer pair"),
    ("valid-share", fraction, 0.1, "fraction of questions held out"),
)
"""Option, type, default and meaning of the settings of training."""


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """What determines a run, with its data, base and seed."""

    lora: LoraSettings
    steps: int
    batch_size: int
    accumulation: int
    lr: float
    warmup_share: float
    max_length: int
    valid_share: float
    answer_only: bool
    precision: str

    def words(self) -> list[str]:
        """The options of `add_hyperparameters`."""
        words = self.lora.words()
        for name, value in vars(self).items():
            flag = f"--{name.replace('_', '-')}"
            if isinstance(value, bool):
                words += [flag] if value else []
            elif not isinstance(value, LoraSettings):
                words += [flag, f"{value:g}" if isinstance(value, float) else str(value)]
        return words


def add_hyperparameters(parser: argparse.ArgumentParser) -> None:
    """Add the options of `Hyperparameters`."""
    add_lora(parser, DEFAULTS)
    group = parser.add_argument_group("training (defaults: those of the published reports)")
    for option, kind, default, meaning in TRAINING:
        group.add_argument(f"--{option}", type=kind, default=default, help=f"{meaning} (%(default)s)")
    group.add_argument("--answer-only", action="store_true", help="compute the loss only on the answers")
    group.add_argument(
        "--precision", choices=("auto", "fp32", "bf16", "4bit"), default="auto",
        help="precision of the base model (auto: on a GPU 4 bits with bitsandbytes, else bf16; on a CPU "
        "fp32)",
    )  # fmt: skip


def hyperparameters(options: argparse.Namespace) -> Hyperparameters:
    """The values of `add_hyperparameters`."""
    names = [option.replace("-", "_") for option, *_ in TRAINING]
    given = {name: getattr(options, name) for name in (*names, "answer_only", "precision")}
    return Hyperparameters(lora=lora_settings(options), **given)


@dataclass(frozen=True)
class Pair:
    """A question and its answer."""

    question: str
    answer: str


@dataclass(frozen=True, kw_only=True)
class CausalSettings(Settings):
    """Settings of the command."""

    data: Path
    """JSON file of questions and answers."""
    model: str
    """Folder or name on the hub."""
    name: str
    """That of the base model, in run folders and tables."""
    seed: int
    hyperparameters: Hyperparameters
    ask: tuple[str, ...] | None
    """Questions to answer; None for held-out ones."""
    new_tokens: int | None
    merge: bool


class LoraCausal(Method):
    """The command `lora-causal`."""

    name = "lora-causal"
    summary = "LoRA of a causal language model on questions and answers"
    outputs = (RESULTS, f"{ADAPTER}/adapter_model.safetensors")

    def add_arguments(self, parser: SettingsParser) -> None:
        """Add the options of the command."""
        parser.description, parser.epilog = __doc__, EXAMPLES
        parser.add_setting(
            "data", None, 'JSON file: {"questions": [{"question": "…", "answer": "…"}, …]}, or only the list'
        )
        parser.add_argument(
            "--sample", type=Path, metavar="DIR", help="only write a small BLOOM and questions to this folder"
        )
        parser.add_argument(
            "--model", default=MODEL, metavar="M",
            help="folder with safetensors, or a name on the Hugging Face hub (%(default)s)",
        )  # fmt: skip
        parser.add_argument(
            "--name",
            help="name of the base model, used as init in run folders and tables (default: from --model)",
        )
        parser.add_setting("seed", "1", "seed of split, training and sampling")
        add_hyperparameters(parser)
        group = parser.add_argument_group("output")
        group.add_argument(
            "--ask", nargs="+", metavar="Q", help="questions to answer (default: held-out questions)"
        )
        group.add_argument(
            "--new-tokens", type=positive, metavar="N",
            help=f"maximum number of tokens per answer ({NEW_TOKENS})",
        )  # fmt: skip
        group.add_argument("--merge", action="store_true", help="also write a merged model without adapters")
        add_execution(parser, jobs=False)

    def settings(self, options: argparse.Namespace) -> CausalSettings:
        """The settings of the run."""
        if options.passthrough:
            raise UserError(f"after --: {options.passthrough[0]}: lora-causal accepts no flags after --")
        return CausalSettings(
            **execution(options),
            data=Path(options.data),
            model=options.model,
            name=options.name or Path(options.model).resolve().name,
            seed=integer("--seed", options.seed, minimum=0, maximum=MAX_SEED),
            hyperparameters=hyperparameters(options),
            ask=None if options.ask is None else tuple(options.ask),
            new_tokens=options.new_tokens,
            merge=options.merge,
        )

    def prepare(self, settings: CausalSettings) -> Path:
        """The file of questions and answers."""
        return settings.data

    def sweep(self, settings: CausalSettings, data: Path) -> Sweep:
        """The run; data, tokenizer and architecture are loaded once to find what is wrong with them."""
        own = settings.hyperparameters
        train, valid = split(read_pairs(data), own.valid_share, settings.seed)
        require_writable(settings.out)
        if own.precision == "4bit" and importlib.util.find_spec("bitsandbytes") is None:
            raise UserError("--precision 4bit: bitsandbytes is not installed; pip install bitsandbytes")
        from roberta_small.experiments.methods.lora import causal_run  # imports torch

        base = causal_run.find_folder(settings.model)
        causal_run.check(base, own, [*train, *valid])
        words = tuple(own.words())
        limits = ("--max-update", str(own.steps), "--valid-subset", "valid")
        recipe = Recipe(self.name, limits)
        weights = " ".join(sha256(path) for path in sorted(base.glob("*.safetensors")))
        identity = {
            "data": fingerprint_data(data.parent, [data.name]),
            "checkpoint": {"path": settings.model, "sha256": weights},
            "recipe_flags": list(words),
        }
        run = run_below(settings.out, self.name, settings.name, settings.seed, base)
        return Sweep(
            settings=settings,
            data=data,
            trainings=(Training(run, recipe, words, identity),),
            recipe=recipe,
            packages=(*FAIRSEQ, *PACKAGES),
        )

    def command(self, sweep: Sweep, training: Training, *, resume: bool, cpu: bool) -> Command:
        """The process that trains the run (causal_run.py)."""
        settings: CausalSettings = sweep.settings
        base = training.run.checkpoint
        assert base is not None
        module = "roberta_small.experiments.methods.lora.causal_run"
        argv = (
            *(sys.executable, "-P", "-m", module, str(sweep.data.absolute())),
            *("--base", str(base.absolute()), "--save-dir", str(training.run.folder.absolute())),
            *("--seed", str(settings.seed), *(("--cpu",) if cpu else ()), *training.flags),
        )
        shown = (
            *("roberta-small", "lora-causal", "--data", shown_path(sweep.data), "--model", settings.model),
            *("--out", shown_path(settings.out), "--seed", str(settings.seed), "--name", settings.name),
            *training.flags,
        )
        return Command(argv, shown)

    def finish(self, sweep: Sweep, folder: Path) -> dict[str, Any]:
        """Add answers to results.json, write merged/ with --merge, and print the report."""
        from roberta_small.experiments.methods.lora import causal_run  # imports torch

        settings: CausalSettings = sweep.settings
        results = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
        base = sweep.trainings[0].run.checkpoint
        assert base is not None
        model = causal_run.Base(base, settings.device, settings.hyperparameters.precision)
        if "answers" not in results or settings.ask or settings.new_tokens:
            _, held_out = split(read_pairs(sweep.data), settings.hyperparameters.valid_share, settings.seed)
            questions = settings.ask or [pair.question for pair in held_out[:QUESTIONS]]
            new_tokens = settings.new_tokens or NEW_TOKENS
            results["answers"] = causal_run.answer(model, folder, questions, new_tokens, settings.seed)
            atomic_write(folder / RESULTS, json.dumps(results, indent=2, ensure_ascii=False) + "\n")
        if settings.merge and not (folder / MERGED).is_dir():
            difference = causal_run.merge(model, folder)
            print(f"{folder / MERGED}: merged; largest difference of a logit {difference:.2g}")
        print(report(results))
        return {key: results[key] for key in RECORDED if key in results}


METHOD = LoraCausal()


def report(results: dict[str, Any]) -> str:
    """Parameters, perplexities and answers of a run as text."""
    trained, total = results["trainable_parameters"], results["parameters"]
    perplexity = results["perplexity"]
    lines = [
        f"trainable parameters: {trained:,} of {total:,} ({100 * trained / total:.4g} %); "
        f"base in {results['base_bits']} bits",
        f"perplexity of {results['valid_pairs']} held-out answers: {perplexity['before']:.4g} before, "
        f"{perplexity['after']:.4g} after",
        f"adapter reloaded: largest difference of a logit {results['reloaded_difference']:.2g}",
    ]
    for asked in results["answers"]:
        lines += ["", f"? {asked['question']}", f"  before: {asked['before']}", f"  after:  {asked['after']}"]
    return "\n".join(lines)


def read_pairs(path: Path) -> list[Pair]:
    """All pairs of a JSON file, in order.

    Raises `UserError` naming file and entry if the file is not JSON or not a list of objects, or if a
    question or answer is missing, empty or not a string.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: not JSON in UTF-8 ({error}); correct the file") from None
    entries = content.get("questions") if isinstance(content, dict) else content
    if not isinstance(entries, list) or not entries:
        raise UserError(
            f'{path}: contains no pairs; write {{"questions": [{{"question": "…", "answer": "…"}}, …]}}'
        )
    return [_pair(f"{path}, entry {number}", entry) for number, entry in enumerate(entries, start=1)]


def _pair(where: str, entry: object) -> Pair:
    if not isinstance(entry, dict):
        raise UserError(f"{where}: not an object with 'question' and 'answer'; correct or remove it")
    for key in ("question", "answer"):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            raise UserError(
                f"{where}: '{key}' is missing, empty or not a string; correct or remove the entry"
            )
    return Pair(entry["question"].strip(), entry["answer"].strip())


def split(pairs: Sequence[Pair], valid_share: float, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Training and held-out pairs; pairs with the same question stay together.

    Raises `UserError` if either part would be empty.
    """
    questions = sorted({pair.question.casefold() for pair in pairs})
    random.Random(seed).shuffle(questions)
    held_out = set(questions[: round(len(questions) * valid_share)])
    train = [pair for pair in pairs if pair.question.casefold() not in held_out]
    valid = [pair for pair in pairs if pair.question.casefold() in held_out]
    if not train or not valid:
        raise UserError(
            f"--valid-share {valid_share:g} of {len(questions)} different questions: {len(train)} pairs "
            f"remain for training and {len(valid)} for validation; use more pairs or another fraction"
        )
    return train, valid
