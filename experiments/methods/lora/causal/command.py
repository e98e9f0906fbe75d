"""`python -m experiments lora-causal`: LoRA of a causal language model on questions and answers.

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
An interrupted run starts from scratch.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roberta_small.common.cli import Parser, fraction, positive, positive_number
from roberta_small.experiments.methods.lora.settings import LoraSettings, add_lora, lora_settings

if TYPE_CHECKING:
    import torch

    from roberta_small.common.run import Run
    from roberta_small.experiments.methods.lora.causal.train import CausalSettings, Task


ARM = "causal-lora"
DEFAULTS = LoraSettings(rank=16, alpha=32, dropout=0.05, target_modules=("query_key_value",))
NEW_TOKENS = 200
"""Maximum length of an answer without --new-tokens."""
QUESTIONS = 3
"""Number of held-out questions to answer without --ask."""
EXAMPLES = """examples:
  python -m preprocess download bloom --out bloom
  python -m experiments lora-causal --model bloom --data faq.json --merge --ask "How can I track my order?"
  python -m experiments lora-sample --out demo/faq
  python -m experiments lora-causal --model demo/faq/bloom --data demo/faq/faq.json --answer-only --lr 5e-3
"""


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m experiments lora-causal`; the exit code."""
    parser = Parser(prog="python -m experiments lora-causal", description=__doc__, examples=EXAMPLES)
    parser.add_argument(
        "--data", type=Path, required=True, metavar="JSON",
        help='JSON file: {"questions": [{"question": "…", "answer": "…"}, …]}, or only the list',
    )  # fmt: skip
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
    group.add_argument("--steps", type=positive, default=80, help="updates (%(default)s)")
    group.add_argument("--batch-size", type=positive, default=1, help="pairs in a batch (%(default)s)")
    group.add_argument("--accumulation", type=positive, default=4, help="batches per update (%(default)s)")
    group.add_argument(
        "--lr", type=positive_number, default=2e-4, help="learning rate, cosine decay to 0 (%(default)s)"
    )
    group.add_argument(
        "--warmup-share",
        type=fraction,
        default=0.05,
        help="fraction of the updates with warm-up (%(default)s)",
    )
    group.add_argument(
        "--max-length",
        type=positive,
        default=512,
        help="maximum number of tokens per question-answer pair (%(default)s)",
    )
    group.add_argument(
        "--valid-share", type=fraction, default=0.1, help="fraction of questions held out (%(default)s)"
    )
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
    run(parser.parse_args(argv))
    return 0


def run(args: argparse.Namespace) -> None:
    """The command: checks, training, report."""
    from transformers.utils.logging import disable_progress_bar

    from roberta_small.common.run import Run, State
    from roberta_small.eval.network import find_device
    from roberta_small.experiments.inputs import require_writable
    from roberta_small.experiments.launchers.local import locked
    from roberta_small.experiments.methods.lora.causal.data import read_pairs
    from roberta_small.experiments.methods.lora.causal.model import find_folder
    from roberta_small.experiments.methods.lora.causal.train import RESULTS
    from roberta_small.experiments.plan import inspect
    from roberta_small.experiments.recipes import Recipe

    disable_progress_bar()  # bars of loading files; ours show the steps that take time
    settings = _settings(args)
    read_pairs(args.data)
    require_writable(args.out)
    device = find_device(args.device)
    base = find_folder(args.model)
    name = args.name or Path(args.model).resolve().name
    folder = Run(args.out / ARM / name / f"seed{args.seed}", ARM, name, args.seed, base)
    identity = _identity(args, base, settings)
    recipe = Recipe(ARM, tuple(settings.words()))
    with locked(args.out):
        if inspect(folder, identity, recipe).state is State.FINISHED:
            print(f"{folder.folder}: finished, skipped")
            _ask_again(args, folder.folder, base, device, settings)
        else:
            _train(args, folder, identity, base, device, settings)
        if args.merge:
            _merge(folder.folder, base, device)
    print(_report(json.loads((folder.folder / RESULTS).read_text(encoding="utf-8"))))


def _ask_again(
    args: argparse.Namespace, run: Path, base: Path, device: torch.device, settings: CausalSettings
) -> None:
    """Generate answers with the stored adapter of a finished run, if --ask or --new-tokens is given."""
    from roberta_small.experiments.methods.lora.causal.train import answer

    if args.ask is not None or args.new_tokens is not None:
        answer(_task(args, base, device), settings, run)


def _settings(args: argparse.Namespace) -> CausalSettings:
    from roberta_small.experiments.methods.lora.causal.train import CausalSettings

    return CausalSettings(
        lora=lora_settings(args),
        seed=args.seed,
        steps=args.steps,
        batch_size=args.batch_size,
        accumulation=args.accumulation,
        lr=args.lr,
        warmup_share=args.warmup_share,
        max_length=args.max_length,
        valid_share=args.valid_share,
        answer_only=args.answer_only,
        precision=args.precision,
    )


def _identity(args: argparse.Namespace, base: Path, settings: CausalSettings) -> dict[str, Any]:
    """The manifest keys that identify the experiment."""
    from roberta_small.common.files import sha256
    from roberta_small.experiments.inputs import fingerprint_data

    data = fingerprint_data(args.data.parent, [args.data.name])
    weights = sorted(base.glob("*.safetensors"))
    checkpoint = {"path": args.model, "sha256": " ".join(sha256(path) for path in weights)}
    return {"data": data, "checkpoint": checkpoint, "recipe_flags": settings.words()}


def _train(
    args: argparse.Namespace,
    run: Run,
    identity: dict[str, Any],
    base: Path,
    device: torch.device,
    settings: CausalSettings,
) -> None:
    from roberta_small.common import manifest
    from roberta_small.experiments import provenance
    from roberta_small.experiments.methods.lora.adapters import ADAPTER
    from roberta_small.experiments.methods.lora.causal.train import MERGED, train
    from roberta_small.experiments.methods.transformers.run_folder import recorded, versions

    for name in (ADAPTER, MERGED, "tensorboard"):
        shutil.rmtree(run.folder / name, ignore_errors=True)
    task = _task(args, base, device)
    where = provenance.machine(device.type)
    content: dict[str, Any] = {
        "schema": manifest.SCHEMA,
        "arm": run.arm,
        "init": run.init,
        "seed": run.seed,
        "recipe": ARM,
        "command": _command(args, settings),
        "precision": "fp32" if task.loading.bits == 32 else "bf16",
    }
    content |= identity | provenance.static(where)
    content["packages"] |= versions()
    with recorded(run.folder, content) as content:
        print(task.loading)
        results = train(task, settings, run.folder)
        content |= {key: results[key] for key in ("trainable_parameters", "parameters", "peak_memory_bytes")}
        content["perplexity"] = results["perplexity"]


def _task(args: argparse.Namespace, base: Path, device: torch.device) -> Task:
    from roberta_small.experiments.methods.lora.causal.data import read_pairs, split
    from roberta_small.experiments.methods.lora.causal.model import choose_loading
    from roberta_small.experiments.methods.lora.causal.train import Task

    train_pairs, valid_pairs = split(read_pairs(args.data), args.valid_share, args.seed)
    questions = args.ask or [pair.question for pair in valid_pairs[:QUESTIONS]]
    loading = choose_loading(device, args.precision)
    return Task(base, loading, device, train_pairs, valid_pairs, questions, args.new_tokens or NEW_TOKENS)


def _command(args: argparse.Namespace, settings: CausalSettings) -> list[str]:
    """The command for this run, as a user would type it."""
    words = [
        "python",
        "-m",
        "roberta_small.experiments",
        "lora-causal",
        "--data",
        str(args.data),
        "--model",
        args.model,
    ]
    words += ["--out", str(args.out), "--seed", str(args.seed)]
    return [*words, *(["--name", args.name] if args.name else []), *settings.words()]


def _merge(run: Path, base: Path, device: torch.device) -> None:
    from roberta_small.experiments.methods.lora.causal.train import MERGED, merge

    if (run / MERGED).is_dir():
        print(f"{run / MERGED}: exists, skipped")
        return
    difference = merge(base, run, device)
    print(f"{run / MERGED}: merged; largest difference of a logit {difference:.2g}")


def _report(results: dict[str, Any]) -> str:
    perplexity = results["perplexity"]
    percent = 100 * results["trainable_parameters"] / results["parameters"]
    lines = [
        f"trainable parameters: {results['trainable_parameters']:,} of {results['parameters']:,} "
        f"({percent:.4g} %)",
        f"perplexity of {results['valid_pairs']} held-out answers: {perplexity['before']:.4g} before, "
        f"{perplexity['after']:.4g} after",
        f"adapter reloaded: largest difference of a logit {results['reloaded_difference']:.2g}",
    ]
    for asked in results["answers"]:
        lines += ["", f"? {asked['question']}", f"  before: {asked['before']}", f"  after:  {asked['after']}"]
    return "\n".join(lines)
