"""`python -m benchmarks` (make bench): what there is to measure, on your text or on the sample corpus."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from common.errors import UserError, one_line_errors
from preprocess.__main__ import main as preprocess

from . import binarize

SAMPLE_COPIES = 8
"""Of the sample's 3 MB, so that start-up time does not decide."""


def use_sample(args: argparse.Namespace, folder: Path) -> None:
    """Point the settings at the sample corpus, with a vocabulary of its own, made in `folder`."""
    preprocess(["sample", "--destdir", str(folder / "text")])
    text = folder / "sample.txt"
    text.write_bytes((folder / "text" / "corpus.train.txt").read_bytes() * SAMPLE_COPIES)
    args.text, args.sentencepiece_model, args.srcdict = (
        str(folder / name) for name in ("sample.txt", "sample.model", "dict.txt")
    )
    words = ["vocabulary", "--train", "--size", "1300", "--text", str(folder / "text" / "corpus.train.txt")]
    words += ["--sentencepiece-model", args.sentencepiece_model, "--output", args.srcdict]
    preprocess(words)


@one_line_errors
def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=binarize.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    binarize.add_arguments(parser)
    args = parser.parse_args(argv)
    given = [args.text, args.sentencepiece_model, args.srcdict]
    if any(given) and not all(given):
        raise UserError("--text, --sentencepiece-model and --srcdict belong together; give all or none")
    with tempfile.TemporaryDirectory() as folder:
        if not any(given):
            use_sample(args, Path(folder))
        binarize.run(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
