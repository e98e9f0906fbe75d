"""Generate text with a left-to-right language model: the continuation of each prompt, in input order.

Decoding is greedy, or random with --sample. It stops where the model ends the sentence, or after --length
tokens. An empty prompt generates a sentence from its beginning. With --sample, the text for a prompt depends
on --seed and the number of the prompt, not on the batch.
"""

from __future__ import annotations

import argparse
import contextlib
import sys

from tqdm import tqdm

from roberta_small.common.cli import positive
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_open, json_line
from roberta_small.eval.options import Sampling, add_checkpoint_files, add_computation, add_texts, overrides
from roberta_small.eval.predict.inputs import read_input

EXAMPLES = """examples:
  roberta-small generate --checkpoint pretrained/causal "Ce livre est"
  roberta-small generate --checkpoint pretrained/causal --sample --top-p 0.9 --temperature 0.8 --seed 3 "Un"
  roberta-small generate --checkpoint pretrained/causal --input prompts.txt --format jsonl --out texts.jsonl
  roberta-small generate --checkpoint model.pt --dict dict.txt --sentencepiece-model s.model "Il était"
"""


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `generate`."""
    parser = subparsers.add_parser(
        "generate",
        help="continue prompts with a left-to-right language model",
        description=__doc__,
        examples=EXAMPLES,
    )
    parser.add_argument(
        "--checkpoint",
        required=True,
        metavar="PATH",
        help="checkpoint, or run folder of `roberta-small pretrain`",
    )
    add_texts(parser, "prompt")
    parser.add_argument(
        "--format",
        choices=("text", "jsonl"),
        default="text",
        help="output format: text (prompt with continuation) or jsonl (prompt, continuation, and whether it "
        "ended with </s>) (default: %(default)s)",
    )
    parser.add_argument(
        "--length",
        type=positive,
        default=50,
        metavar="N",
        help="maximum number of tokens to add (default: %(default)s)",
    )
    group = parser.add_argument_group("sampling")
    group.add_argument("--sample", action="store_true", help="sample tokens instead of greedy decoding")
    group.add_argument("--temperature", type=float, metavar="T", help="divisor of the logits (default: 1)")
    group.add_argument(
        "--top-k", type=int, metavar="K", help="sample only from the K most probable tokens (default: all)"
    )
    group.add_argument(
        "--top-p",
        type=float,
        metavar="P",
        help="sample only from the most probable tokens with a total probability of P (default: 1)",
    )
    group.add_argument("--seed", type=int, metavar="N", help="seed of the random numbers (default: 1)")
    add_checkpoint_files(parser, apostrophes=True)
    add_computation(parser, max_tokens=False)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Load the model, then generate block by block."""
    if args.text and args.input:
        raise UserError("TEXT and --input: specify only one of them")
    given = {name: getattr(args, name) for name in ("temperature", "top_k", "top_p", "seed")}
    given = {name: value for name, value in given.items() if value is not None}
    if given and not args.sample:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UserError(f"{flags}: only with --sample")
    seed = given.pop("seed", 1)
    if seed < 0:
        raise UserError(f"--seed {seed}: must be 0 or more")
    sampling = Sampling(**given) if args.sample else None  # before torch is imported, which takes seconds
    from roberta_small.eval.language_model import BATCH, LanguageModel
    from roberta_small.eval.precision import print_precisions

    model = LanguageModel.from_run(args.checkpoint, **overrides(args))
    print_precisions([model.model.precision])
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(atomic_open(args.out)) if args.out else sys.stdout
        hidden = True if output.isatty() else None
        bar = stack.enter_context(tqdm(desc="generate", unit=" prompts", leave=False, disable=hidden))
        for lines, first, _ in read_input(args.text, args.input):
            for start in range(0, len(lines), BATCH):
                prompts = lines[start : start + BATCH]
                completions = model.generate(
                    prompts, length=args.length, sampling=sampling, seed=seed, first=first + start
                )
                for one in completions:
                    fields = {"prompt": one.prompt, "continuation": one.continuation, "ended": one.ended}
                    output.write(one.text + "\n" if args.format == "text" else json_line(fields))
                output.flush()
                bar.update(len(prompts))
