"""Reviews and random spans of their sentences, each a document of its own.

    python results/distilled/review_spans.py books.txt films.txt --out spans.txt

The input has one review per line. Each review is kept. For each of its sentences, a span of 1 to 6
consecutive sentences of the review is drawn, with at least 30 characters.
"""

import random
import re
from pathlib import Path

from roberta_small.common.cli import Parser
from roberta_small.common.errors import report_errors
from roberta_small.common.files import atomic_write

SEED = 1
MOST_SENTENCES = 6
LEAST_CHARACTERS = 30
END = re.compile(r"(?<=[.!?…])\s+")


def random_span(sentences: list[str], generator: random.Random) -> str:
    """1 to 6 consecutive sentences."""
    length = generator.randint(1, min(MOST_SENTENCES, len(sentences)))
    first = generator.randrange(len(sentences) - length + 1)
    return " ".join(sentences[first : first + length])


def spans(review: str, generator: random.Random) -> list[str]:
    """The review, and different spans of it."""
    sentences = END.split(review)
    found = {review: None}
    for _ in sentences if len(sentences) > 1 else ():
        span = random_span(sentences, generator)
        if len(span) >= LEAST_CHARACTERS:
            found.setdefault(span)
    return list(found)


@report_errors
def main() -> None:
    """The command."""
    parser = Parser(description=__doc__)
    parser.add_argument("reviews", nargs="+", type=Path)
    parser.add_argument("--out", required=True, type=Path)
    options = parser.parse_args()
    generator = random.Random(SEED)
    lines = [line.strip() for path in options.reviews for line in path.read_text("utf-8").split("\n")]
    documents = [span for line in lines if line for span in spans(line, generator)]
    generator.shuffle(documents)
    atomic_write(options.out, "".join(f"{document}\n\n" for document in documents))


if __name__ == "__main__":
    raise SystemExit(main())
