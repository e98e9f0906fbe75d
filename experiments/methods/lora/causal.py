"""LoRA of a causal language model on questions and answers.

The defaults are those of the published reports: BLOOM-560m, rank 16 on `query_key_value`, 80 updates. With
bitsandbytes and a GPU the base model is loaded in 4 bits (QLoRA), otherwise in full precision; the first line
of the output shows which. Some questions are held out. The perplexity of their answers is measured before and
after training, and some answers are generated. Writes OUT/causal-lora/NAME/seedN:

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
import json
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roberta_small.common.cli import Parser, fraction, positive, positive_number
from roberta_small.common.errors import UserError
from roberta_small.experiments.methods.lora.settings import LoraSettings, add_lora, lora_settings

if TYPE_CHECKING:
    from roberta_small.common.run import Run
    from roberta_small.experiments.methods.lora.causal_model import Task

ARM = "causal-lora"
DEFAULTS = LoraSettings(rank=16, alpha=32, dropout=0.05, target_modules=("query_key_value",))
RESULTS, MERGED = "results.json", "merged"
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
class CausalSettings:
    """Settings that, with data, base and seed, determine a run."""

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
        """The settings as flags, for a manifest."""
        words = self.lora.words()
        for name, value in ((field.name, getattr(self, field.name)) for field in fields(self)[1:]):
            flag = f"--{name.replace('_', '-')}"
            if isinstance(value, bool):
                words += [flag] if value else []
            else:
                words += [flag, f"{value:g}" if isinstance(value, float) else str(value)]
        return words


@dataclass(frozen=True)
class Pair:
    """A question and its answer."""

    question: str
    answer: str


def main(argv: Sequence[str] | None = None) -> int:
    """`roberta-small lora-causal`; the exit code."""
    parser = Parser(prog="roberta-small lora-causal", description=__doc__, examples=EXAMPLES)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--data", type=Path, metavar="JSON",
        help='JSON file: {"questions": [{"question": "…", "answer": "…"}, …]}, or only the list',
    )  # fmt: skip
    what.add_argument(
        "--sample", type=Path, metavar="DIR", help="only write a small BLOOM and questions to this folder"
    )
    parser.add_argument(
        "--model", default="bigscience/bloom-560m", metavar="M",
        help="folder with safetensors, or a name on the Hugging Face hub (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of the runs (%(default)s)")
    parser.add_argument(
        "--name",
        help="name of the base model, used as init in run folders and tables (default: from --model)",
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of split, training and sampling (%(default)s)"
    )
    add_lora(parser, DEFAULTS)
    group = parser.add_argument_group("training (defaults: those of the published reports)")
    for option, kind, default, meaning in TRAINING:
        group.add_argument(f"--{option}", type=kind, default=default, help=f"{meaning} (%(default)s)")
    group.add_argument("--answer-only", action="store_true", help="compute the loss only on the answers")
    group.add_argument(
        "--precision", choices=("auto", "fp32", "bf16", "4bit"), default="auto",
        help="precision of the base model (auto: 4 bits with bitsandbytes and a GPU, else fp32; 4bit also "
        "runs on CPU)",
    )  # fmt: skip
    group.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="(%(default)s)")
    group = parser.add_argument_group("output")
    group.add_argument(
        "--ask", nargs="+", metavar="Q", help="questions to answer (default: held-out questions)"
    )
    group.add_argument(
        "--new-tokens", type=positive, metavar="N", help=f"maximum number of tokens per answer ({NEW_TOKENS})"
    )
    group.add_argument("--merge", action="store_true", help="also write a merged model without adapters")
    args = parser.parse_args(argv)
    if args.sample is not None:
        from roberta_small.experiments.methods.lora import sample

        sample.write(args.sample)
        print(f"{args.sample}: faq.json and bloom/")
    else:
        run(args)
    return 0


def run(args: argparse.Namespace) -> None:
    """The command: checks, training, report."""
    from transformers.utils.logging import disable_progress_bar

    from roberta_small.common.run import Run, State
    from roberta_small.eval.network import find_device
    from roberta_small.experiments.execute import claimed
    from roberta_small.experiments.inputs.files import require_writable
    from roberta_small.experiments.methods.lora import causal_model
    from roberta_small.experiments.plan import inspect
    from roberta_small.experiments.recipe.recipe import Recipe
    from roberta_small.experiments.sweep import Training

    disable_progress_bar()  # bars of loading files; ours show the steps that take time
    given = {field.name: getattr(args, field.name) for field in fields(CausalSettings)[1:]}
    settings = CausalSettings(lora=lora_settings(args), **given)
    train_pairs, valid_pairs = split(read_pairs(args.data), args.valid_share, args.seed)
    require_writable(args.out)
    device = find_device(args.device)
    bits, why = causal_model.choose_bits(device, args.precision)
    task = causal_model.Task(
        base=causal_model.find_folder(args.model),
        bits=bits,
        device=device,
        settings=settings,
        seed=args.seed,
        train=train_pairs,
        valid=valid_pairs,
        questions=args.ask or [pair.question for pair in valid_pairs[:QUESTIONS]],
        new_tokens=args.new_tokens or NEW_TOKENS,
    )
    name = args.name or Path(args.model).resolve().name
    planned = Run(args.out / ARM / name / f"seed{args.seed}", ARM, name, args.seed, task.base)
    folder, identity = planned.folder, _identity(args, task)
    words = tuple(settings.words())
    training = Training(planned, Recipe(ARM, words), words, identity)
    with claimed(folder):
        if inspect(training, lambda folder: False).state is not State.FINISHED:
            print(f"base in {'4 bits (nf4)' if bits == 4 else f'{bits} bits'}: {why}")
            _train(args, planned, identity, task)
        else:
            print(f"{folder}: finished, skipped")
            if args.ask is not None or args.new_tokens is not None:
                _write_results(folder, _results(folder) | {"answers": causal_model.answer(task, folder)})
        if args.merge and (folder / MERGED).is_dir():
            print(f"{folder / MERGED}: exists, skipped")
        elif args.merge:
            difference = causal_model.merge(task, folder, folder / MERGED)
            print(f"{folder / MERGED}: merged; largest difference of a logit {difference:.2g}")
    print(_report(_results(folder)))


def _identity(args: argparse.Namespace, task: Task) -> dict[str, Any]:
    """The manifest keys that identify the experiment."""
    from roberta_small.common.files import sha256
    from roberta_small.experiments.inputs.files import fingerprint_data

    weights = " ".join(sha256(path) for path in sorted(task.base.glob("*.safetensors")))
    return {
        "data": fingerprint_data(args.data.parent, [args.data.name]),
        "checkpoint": {"path": args.model, "sha256": weights},
        "recipe_flags": task.settings.words(),
    }


def _train(args: argparse.Namespace, run: Run, identity: dict[str, Any], task: Task) -> None:
    """Train a run and write its manifest and results.json."""
    from roberta_small.common import manifest
    from roberta_small.common.run import TENSORBOARD
    from roberta_small.experiments import provenance
    from roberta_small.experiments.methods.lora import causal_model
    from roberta_small.experiments.methods.lora.adapters import ADAPTER
    from roberta_small.experiments.methods.transformers.run_folder import PACKAGES, recorded
    from roberta_small.experiments.sweep import PACKAGES as FAIRSEQ

    for name in (ADAPTER, MERGED, TENSORBOARD):
        shutil.rmtree(run.folder / name, ignore_errors=True)
    command = ["roberta-small", "lora-causal", "--data", str(args.data), "--model", args.model]
    command += ["--out", str(args.out), "--seed", str(args.seed), "--name", run.init]
    content: dict[str, Any] = {
        "schema": manifest.SCHEMA,
        "arm": run.arm,
        "init": run.init,
        "seed": run.seed,
        "recipe": ARM,
        "command": [*command, *task.settings.words()],
        "precision": "fp32" if task.bits == 32 else "bf16",
    }
    content |= identity | provenance.static(provenance.machine(task.device.type), (*FAIRSEQ, *PACKAGES))
    with recorded(run.folder, content) as content:
        results = causal_model.train(task, run.folder)
        _write_results(run.folder, results)
        measured = ("trainable_parameters", "parameters", "peak_memory_bytes", "perplexity")
        content |= {key: results[key] for key in measured}


def _results(folder: Path) -> dict[str, Any]:
    return json.loads((folder / RESULTS).read_text(encoding="utf-8"))


def _write_results(folder: Path, results: dict[str, Any]) -> None:
    from roberta_small.common.files import atomic_write

    atomic_write(folder / RESULTS, json.dumps(results, indent=2, ensure_ascii=False) + "\n")


def _report(results: dict[str, Any]) -> str:
    trained, total = results["trainable_parameters"], results["parameters"]
    perplexity = results["perplexity"]
    lines = [
        f"trainable parameters: {trained:,} of {total:,} ({100 * trained / total:.4g} %)",
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
