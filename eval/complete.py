"""Complete sentences with a left-to-right language model, one prompt a line, in the order of the lines.

Greedily, or with --sample at random, until the model ends the sentence or --length pieces are added. An
empty prompt gives a sentence from its beginning. With --sample, the same seed gives the same text to the
prompt of the same number, whatever the batch.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from typing import TYPE_CHECKING

from tqdm import tqdm

from common.cli import positive
from common.errors import UserError
from common.files import atomic_open

from .language_model import Sampling
from .options import add_checkpoint_files
from .predict import STDIN, read_input

if TYPE_CHECKING:
    from .language_model import Completion

EXAMPLES = """examples:
  python -m eval complete --checkpoint pretrained/causal "Ce livre est"
  python -m eval complete --checkpoint pretrained/causal --sample --top-p 0.9 --temperature 0.8 --seed 3 "Un"
  python -m eval complete --checkpoint pretrained/causal --input prompts.txt --format jsonl --output a.jsonl
  python -m eval complete --checkpoint model.pt --dict dict.txt --sentencepiece-model s.model "Il était"
"""


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `complete`."""
    parser = subparsers.add_parser(
        "complete",
        help="the rest of a sentence, from a left-to-right language model",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("text", nargs="*", metavar="TEXT", help="prompts (default: read --input)")
    parser.add_argument(
        "--checkpoint", required=True, metavar="C", help="a checkpoint, or a run's folder of pretrain.sh"
    )
    parser.add_argument(
        "--input", metavar="FILE", help=f"one prompt a line, plain, .gz or .xz (default: {STDIN})"
    )
    parser.add_argument("--output", metavar="FILE", help="appears whole (default: standard output)")
    parser.add_argument(
        "--format",
        choices=("text", "jsonl"),
        default="text",
        help="text: whole sentences; jsonl: prompt, continuation and whether it ended (%(default)s)",
    )
    parser.add_argument(
        "--length", type=positive, default=50, metavar="N", help="most pieces to add (%(default)s)"
    )
    group = parser.add_argument_group("drawing at random")
    group.add_argument("--sample", action="store_true", help="draw pieces instead of taking the best")
    group.add_argument("--temperature", type=float, metavar="T", help="scores are divided by it (1)")
    group.add_argument("--top-k", type=int, metavar="K", help="only the K most probable pieces (all)")
    group.add_argument(
        "--top-p", type=float, metavar="P", help="only the most probable pieces that reach P together (1)"
    )
    group.add_argument("--seed", type=int, metavar="S", help="of the random numbers (1)")
    add_checkpoint_files(parser)
    parser.add_argument("--data", metavar="DATA", help="binarized folder of the run")
    parser.add_argument("--sentencepiece-model", metavar="MODEL", help="that the data were made with")
    parser.add_argument(
        "--normalize-apostrophes",
        action="store_true",
        help="read every apostrophe as ' (default: as the data)",
    )
    group = parser.add_argument_group("computation")
    group.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to compute (%(default)s)"
    )
    group.add_argument(
        "--precision", choices=("auto", "fp32", "bf16"), help="of the matrix products (default: as trained)"
    )
    group.add_argument(
        "--batch-size", type=positive, default=32, metavar="N", help="prompts at a time (%(default)s)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """The command: load, then complete block by block."""
    sampling, seed = sampling_of(args)
    if args.text and args.input:
        raise UserError("TEXT and --input: give the prompts in one way")
    from .language_model import LanguageModel

    model = LanguageModel.from_run(
        args.checkpoint,
        data=args.data,
        dictionary=args.dict,
        sentencepiece_model=args.sentencepiece_model,
        normalize_apostrophes=args.normalize_apostrophes,
        device=args.device,
        precision=args.precision,
    )
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(atomic_open(args.output)) if args.output else sys.stdout
        hidden = True if output.isatty() else None
        bar = stack.enter_context(tqdm(desc="complete", unit=" prompts", leave=False, disable=hidden))
        for block in read_input(args.text, args.input):
            for start in range(0, len(block.lines), args.batch_size):
                prompts = block.lines[start : start + args.batch_size]
                completions = model.complete(
                    prompts,
                    length=args.length,
                    sampling=sampling,
                    seed=seed,
                    first=block.first + start,
                    batch_size=args.batch_size,
                )
                output.writelines(f"{written(completion, args.format)}\n" for completion in completions)
                output.flush()
                bar.update(len(prompts))


def sampling_of(args: argparse.Namespace) -> tuple[Sampling | None, int]:
    """How pieces are drawn (None: greedily) and the seed; raises `UserError` for flags without --sample."""
    given = {name: getattr(args, name) for name in ("temperature", "top_k", "top_p", "seed")}
    given = {name: value for name, value in given.items() if value is not None}
    if given and not args.sample:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UserError(f"{flags}: of drawing at random; add --sample")
    seed = given.pop("seed", 1)
    if seed < 0:
        raise UserError(f"--seed {seed}: give 0 or more")
    return (Sampling(**given) if args.sample else None), seed


def written(completion: Completion, kind: str) -> str:
    """One line of output."""
    if kind == "text":
        return completion.text
    fields = {
        "prompt": completion.prompt,
        "continuation": completion.continuation,
        "ended": completion.ended,
    }
    return json.dumps(fields, ensure_ascii=False)
