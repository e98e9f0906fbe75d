"""Many views of few reviews, with words of a general text.

    python results/distilled/review_views.py reviews.txt corpus.txt --out views.txt

Documents are separated by empty lines; each review is one document. The general text is cut into spans of
1 to 6 consecutive sentences. 15,000 of them are selected that are most like reviews, by the difference of the
cross-entropies of their words (Moore and Lewis 2010; labels are not used). Of these and of the reviews,
40,000 views are drawn: consecutive words, consecutive sentences without some of their words, or spans of two
or three texts. In each view, up to half of the words are replaced by words that a text has between the same
two neighbours (compare the augmentation of Jiao et al. 2020). The result has the reviews and the views, each
a document of its own.
"""

import math
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from review_spans import END, LEAST_CHARACTERS, MOST_SENTENCES, random_span
from sample_documents import documents

from roberta_small.common.cli import Parser
from roberta_small.common.errors import UserError, report_errors
from roberta_small.common.files import atomic_write

SEED = 1
SELECTED = 15_000
SHORT = 10  # words that a span needs for half of its score
VIEWS = 40_000
REVIEWS = 0.75  # fraction of the views that are views of reviews
LEAST_WORDS, MOST_WORDS = 4, 180  # 180 words of French have about 256 subword tokens
MOST_OMITTED = 0.3  # of the words of a view
MOST_REPLACED = 0.5

Context = tuple[str, str]


def texts(path: Path) -> list[str]:
    """The documents of a file, each in one line."""
    return [" ".join(line.strip() for line in lines) for lines in documents(path)]


def cut(text: str, generator: random.Random) -> Iterator[str]:
    """A text as consecutive spans of sentences, each at most of `MOST_WORDS`."""
    sentences = END.split(text)
    while sentences:
        length = generator.randint(1, MOST_SENTENCES)
        yield " ".join(" ".join(sentences[:length]).split()[:MOST_WORDS])
        sentences = sentences[length:]


def like_reviews(spans: list[str], reviews: list[str]) -> list[str]:
    """The spans that are most like reviews, in their order."""
    counts = [Counter(word for text in part for word in words_of(text)) for part in (reviews, spans)]
    vocabulary = len(counts[0] | counts[1])
    own, general = ({word: math.log(count + 1) for word, count in part.items()} for part in counts)
    prior = math.log(counts[1].total() + vocabulary) - math.log(counts[0].total() + vocabulary)

    def score(text: str) -> float:
        words = words_of(text)
        return sum(own.get(word, 0) - general[word] + prior for word in words) / (len(words) + SHORT)

    best = sorted(range(len(spans)), key=lambda place: -score(spans[place]))[:SELECTED]
    return [spans[place] for place in sorted(best)]


def words_of(text: str) -> list[str]:
    """Words and punctuation marks."""
    return re.findall(r"\w+|[^\w\s]", text.lower())


def contexts(text: str) -> Iterator[tuple[Context, str]]:
    """Each word that has two neighbours, after these, without regard to case."""
    words = text.split()
    lower = text.lower().split()
    for left, word, right in zip(lower, words[1:], lower[2:], strict=False):
        yield (left, right), word


def substitutes(reviews: list[str], others: list[str]) -> dict[Context, list[str]]:
    """Of each context of a word in the reviews, the different words that all texts have there."""
    found: dict[Context, dict[str, None]] = {context: {} for text in reviews for context, _ in contexts(text)}
    for text in (*reviews, *others):
        for context, word in contexts(text):
            if context in found:
                found[context][word] = None
    return {context: list(words) for context, words in found.items() if len(words) > 1}


def span(text: str, generator: random.Random) -> str:
    """1 to 6 consecutive sentences of a text."""
    return random_span(END.split(text), generator)


def view(text: str, others: list[str], generator: random.Random) -> str:
    """A view of a text, maybe together with spans of others."""
    kind = generator.random()
    if kind < 0.4:  # consecutive words; the logarithm of their number is uniform
        words = text.split()
        length = math.exp(generator.uniform(math.log(LEAST_WORDS), math.log(MOST_WORDS)))
        length = min(len(words), int(length))
        first = generator.randrange(len(words) - length + 1)
        return " ".join(words[first : first + length])
    if kind < 0.7:
        omitted = generator.uniform(0, MOST_OMITTED)
        return " ".join(word for word in span(text, generator).split() if generator.random() >= omitted)
    return " ".join(span(each, generator) for each in [text, *others[: generator.randint(1, 2)]])


def views(
    reviews: list[str], selected: list[str], words: dict[Context, list[str]], generator: random.Random
) -> list[str]:
    """Views of reviews and other texts, long texts more often than short ones.

    Some words are replaced by others with the same neighbours.
    """
    every = [*reviews, *selected]
    weights: list[float] = []
    for part, fraction in ((reviews, REVIEWS), (selected, 1 - REVIEWS)):
        roots = [math.sqrt(len(text)) for text in part]
        weights += [fraction * root / sum(roots) for root in roots]
    found = []
    for text in generator.choices(every, weights, k=VIEWS):
        seen = view(text, generator.choices(every, weights, k=2), generator)
        replaced = generator.uniform(0, MOST_REPLACED)
        result = seen.split()
        for place, (context, _) in enumerate(contexts(seen), start=1):
            if context in words and generator.random() < replaced:
                result[place] = generator.choice(words[context])
        found.append(" ".join(result[:MOST_WORDS]))
    return found


@report_errors
def main() -> None:
    """The command."""
    parser = Parser(description=__doc__)
    parser.add_argument("reviews", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--out", required=True, type=Path)
    options = parser.parse_args()
    generator = random.Random(SEED)
    reviews = texts(options.reviews)
    if not reviews:
        raise UserError(f"{options.reviews}: contains no text")
    read = set(reviews)
    others = [text for text in texts(options.corpus) if text not in read]
    parts = (part for text in others for part in cut(text, generator))
    spans = list(dict.fromkeys(part for part in parts if len(part) >= LEAST_CHARACTERS))
    selected = like_reviews(spans, reviews)
    words = substitutes([*reviews, *selected], others)
    found = [*reviews, *filter(None, views(reviews, selected, words, generator))]
    generator.shuffle(found)
    atomic_write(options.out, "".join(f"{text}\n\n" for text in found))


if __name__ == "__main__":
    raise SystemExit(main())
