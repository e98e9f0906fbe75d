"""LoRA of a causal language model on questions and answers.

The defaults are those of the published reports: BLOOM-560m, rank 16 on `query_key_value`, 80 updates. With
bitsandbytes and a GPU the base model is loaded in 4 bits (QLoRA). A tenth of the questions is held out: the
perplexity of their answers is measured before and after training. Some answers are written by the base and by
the trained model. Writes OUT/lora-causal/NAME/seedN:

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
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_small.common.cli import SettingsParser, integer, positive
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_write, sha256, shown_path
from roberta_small.experiments.inputs.files import fingerprint_data, require_writable
from roberta_small.experiments.methods import Command, Method
from roberta_small.experiments.methods.lora import settings as lora
from roberta_small.experiments.methods.lora.settings import ADAPTER, MERGED, RESULTS, Hyperparameters
from roberta_small.experiments.methods.transformers.method import PACKAGES
from roberta_small.experiments.recipe.recipe import Recipe
from roberta_small.experiments.settings import MAX_SEED, Settings, add_execution, execution
from roberta_small.experiments.sweep import PACKAGES as FAIRSEQ
from roberta_small.experiments.sweep import Sweep, Training, run_below

MODEL = "bigscience/bloom-560m"
FIXED = ("--accumulation", "4", "--warmup-share", "0.05", "--valid-share", "0.1")
"""The constants of `causal_run`, as they are in the manifests of version 1, in which they were options."""
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
        parser.add_setting("seed", "1", "random seed")
        lora.add_hyperparameters(parser)
        group = parser.add_argument_group("output")
        group.add_argument(
            "--ask", nargs="+", metavar="Q", help="questions to answer (default: held-out questions)"
        )
        group.add_argument(
            "--new-tokens", type=positive, metavar="N",
            help=f"maximum number of tokens per answer ({NEW_TOKENS})",
        )  # fmt: skip
        group.add_argument(
            "--merge", action="store_true", help="also write the merged model of each finished run"
        )
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
            hyperparameters=Hyperparameters.of(options),
            ask=None if options.ask is None else tuple(options.ask),
            new_tokens=options.new_tokens,
            merge=options.merge,
        )

    def sweep(self, settings: CausalSettings, data: Path) -> Sweep:
        """The run; data, tokenizer and architecture are loaded once to find what is wrong with them."""
        from roberta_small.experiments.methods.lora import causal_run  # imports torch

        own = settings.hyperparameters
        pairs = causal_run.read_pairs(data)
        causal_run.split(pairs, settings.seed)
        require_writable(settings.out)
        if own.precision == "4bit" and importlib.util.find_spec("bitsandbytes") is None:
            raise UserError("--precision 4bit: bitsandbytes is not installed; pip install bitsandbytes")
        base = causal_run.find_folder(settings.model)
        causal_run.check(base, own, pairs)
        words = tuple(own.words())
        recipe = Recipe(self.name, ("--max-update", str(own.steps), "--valid-subset", "valid"))
        weights = " ".join(sha256(path) for path in sorted(base.glob("*.safetensors")))
        identity = {
            "data": fingerprint_data(data.parent, [data.name]),
            "checkpoint": {"path": settings.model, "sha256": weights},
            "recipe_flags": [*words, *FIXED],
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
        seed = ("--seed", str(settings.seed))
        argv = (
            *(sys.executable, "-P", "-m", "roberta_small.experiments.methods.lora.causal_run"),
            *(str(sweep.data.absolute()), "--base", str(base.absolute())),
            *("--save-dir", str(training.run.folder.absolute()), *seed),
            *(*(("--cpu",) if cpu else ()), *training.flags),
        )
        shown = (
            *("roberta-small", "lora-causal", "--data", shown_path(sweep.data), "--model", settings.model),
            *("--out", shown_path(settings.out), *seed, "--name", settings.name, *training.flags),
        )
        return Command(argv, shown)

    def finish(self, sweep: Sweep, folder: Path) -> dict[str, Any]:
        """Add answers to results.json, write merged/ with --merge, and print the report."""
        from roberta_small.experiments.methods.lora import causal_run  # imports torch

        settings: CausalSettings = sweep.settings
        results = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
        checkpoint = sweep.trainings[0].run.checkpoint
        assert checkpoint is not None
        base = causal_run.Base.open(checkpoint, settings.device, settings.hyperparameters.precision)
        if "answers" not in results or settings.ask or settings.new_tokens:
            _, held_out = causal_run.split(causal_run.read_pairs(sweep.data), settings.seed)
            questions = settings.ask or [pair.question for pair in held_out[:QUESTIONS]]
            new_tokens = settings.new_tokens or NEW_TOKENS
            results["answers"] = causal_run.answer(base, folder, questions, new_tokens, settings.seed)
            atomic_write(folder / RESULTS, json.dumps(results, indent=2, ensure_ascii=False) + "\n")
        if settings.merge and not (folder / MERGED).is_dir():
            difference = causal_run.merge(base, folder)
            print(f"{folder / MERGED}: merged; largest difference of a logit {difference:.2g}")
        trained, total = results["trainable_parameters"], results["parameters"]
        perplexity = results["perplexity"]
        print(
            f"trainable parameters: {trained:,} of {total:,} ({100 * trained / total:.4g} %); "
            f"base in {results['base_bits']} bits\n"
            f"perplexity of {results['valid_pairs']} held-out answers: {perplexity['before']:.4g} before, "
            f"{perplexity['after']:.4g} after\n"
            f"adapter reloaded: largest difference of a logit {results['reloaded_difference']:.2g}"
        )
        for asked in results["answers"]:
            print(f"\n? {asked['question']}\n  before: {asked['before']}\n  after:  {asked['after']}")
        return {key: results[key] for key in RECORDED if key in results}


METHOD = LoraCausal()
