"""A small generated French corpus, for trying every command without a download.

    DIR/train.input0, train.label    labelled book reviews, one per line; 0 = negative, 1 = positive
    DIR/valid.input0, valid.label
    DIR/test.input0, test.label
    DIR/corpus.train.txt             unlabelled paragraphs, one per line, a blank line between documents
    DIR/corpus.valid.txt
    DIR/sample.json                  options, counts, SHA-256 of each file

The same options give the same bytes on every machine.
"""

from __future__ import annotations

import functools
import json
import random
import re
import tomllib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_small.common.cli import Parser
from roberta_small.common.errors import UserError, report_errors
from roberta_small.common.files import atomic_folder, atomic_write, sha256

SEED = 1
REVIEWS, PARAGRAPHS = 400, 18_000
PARAGRAPHS_PER_DOCUMENT = 3
NEGATIVE, POSITIVE = 0, 1
SLOT = re.compile(r"\{([+-]?)([\w ]+)\}")
# Words that lose their vowel before another one, except before an aspirated h or the y of a name.
ELISION = re.compile(
    r"\b(de|la|le|je|ne|me|se|que) (?!haletant|hasardeu|Haddad|Yann)(?=[aeiouyhâàéèêëîïôûùœ])", re.IGNORECASE
)


@functools.cache
def language() -> dict[str, Any]:
    """The words and frames of sample.toml, with its lists of words as lists."""

    def entries(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: entries(inner) for name, inner in value.items()}
        return re.split(r", |\n", value.strip()) if isinstance(value, str) else value

    return entries(tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Mix:
    """How the opinion of a text is put together."""

    weights: dict[str, int]
    """Of the sentence patterns (`[sentence]` in sample.toml)."""
    denial_rate: float
    """Fraction of clauses that deny the opposite instead of stating the opinion."""
    fewest: int
    """Sentences of opinion, the verdict not counted; a text has this number or one more."""
    verdict_rate: float
    """Fraction of texts that end with what the reader did: "Bref, je l'ai offert à ma sœur."."""


# Reviews are hard: much is denied, conceded or reported. In paragraphs, like goes with like.
REVIEW = Mix(
    {"plain": 6, "echo": 4, "concession": 4, "reported": 2, "expected": 1, "compared": 1}, 0.24, 3, 0.4
)
PARAGRAPH = Mix({"plain": 5, "echo": 8, "concession": 1, "compared": 1}, 0.05, 2, 0.8)


class Writer:
    """Writes texts, each of one opinion; everything random comes from one generator.

    No single word determines the label: a writer who liked the book may deny a fault ("n'est pas ennuyeux"),
    concede one ("malgré un rythme lent, ...") or contradict others ("à en croire la presse, ..."). Choices
    are drawn without replacement from shuffled packs, one pack per label: all expressions are equally
    frequent, and no neutral word correlates with a label. Only `Random.random` is used, whose numbers are
    guaranteed to be the same in every version of Python.
    """

    def __init__(self, seed: str, mix: Mix = REVIEW) -> None:
        self._random = random.Random(seed).random
        self._mix = mix
        self._patterns = [name for name, weight in mix.weights.items() for _ in range(weight)]
        self._kinds = [kind for kind, weight in language()["kinds"].items() for _ in range(weight)]
        self._label = NEGATIVE
        self._packs: dict[Hashable, list[str]] = {}

    def review(self, label: int) -> str:
        """A labelled review: how the book was met, what it tells, opinions."""
        self._label = label
        neutral = [self._sentence(name, "neutral") for name in ("met", "told")]
        return " ".join([*neutral, *self._opinions()])

    def document(self, label: int, paragraphs: int) -> list[str]:
        """Unlabelled paragraphs by one reader of one opinion."""
        self._label = label
        first, *others = (" ".join([self._sentence("mark"), *self._opinions()]) for _ in range(paragraphs))
        return [f"{self._sentence('met', 'neutral')} {first}", *others]

    def _sentence(self, name: str, kind: str = "sentence") -> str:
        return sentence(self._fill(self._draw(name, language()[kind][name]), self._label))

    def _opinions(self) -> list[str]:
        """The sentences that express the label."""
        patterns: list[str] = []
        for _ in range(self._mix.fewest + int(self._random() * 2)):
            name = self._draw("pattern", self._patterns)
            patterns.append("plain" if name in patterns else name)  # one comparison a text is enough
        if self._random() < self._mix.verdict_rate:
            patterns.append("verdict")
        return [self._sentence(name) for name in patterns]

    def _fill(self, frame: str, opinion: int) -> str:
        """The frame with its slots filled so that it expresses `opinion`."""
        aspect = Noun.parse(self._draw("aspect", language()["aspects"]))
        slots = aspect.slots()

        def slot(match: re.Match[str]) -> str:
            sign, name = match.groups()
            if name in slots:
                return slots[name]
            if not sign:
                return self._fill(self._draw(name, language()["neutral"][name]), opinion)
            return self._express(name, 1 - opinion if sign == "-" else opinion, aspect)

        return SLOT.sub(slot, frame)

    def _express(self, name: str, opinion: int, aspect: Noun) -> str:
        """The content of a slot with a sign: a clause, or an expression in its right form."""
        match name:
            case "clause":
                return self._clause(self._draw(("clause", opinion), self._kinds), opinion)
            case "claim":  # what anyone could say
                return self._clause(self._draw(("claim", opinion), ("predicate", "noun")), opinion)
            case "remark":  # something minor
                return self._clause("adjective", opinion)
            case "deed":
                return self._clause("reader", opinion)
        negation, _, kind = name.rpartition(" ")
        word = self._draw((kind, opinion), language()["opinion"][kind]["positive" if opinion else "negative"])
        match kind:
            case "adjective":
                return word.partition("/")[0] if negation else agree(word, aspect)
            case "noun":
                return Noun.parse(word).a()
            case "predicate":
                verb, rest = word.split(" | ")  # "tient | en haleine"
                return f"ne {verb} pas {rest}" if negation else f"{verb} {rest}"
            case "reader":
                return first_person(word, negated=bool(negation))
        return word

    def _clause(self, kind: str, opinion: int) -> str:
        way = "deny" if self._random() < self._mix.denial_rate else "affirm"
        return self._fill(self._draw((way, kind), language()[way][kind]), opinion)

    def _draw(self, name: Hashable, cards: Sequence[str]) -> str:
        """The next card of the current label's pack, shuffled anew when it is empty."""
        pack = self._packs.setdefault((self._label, name), [])
        if not pack:
            pack.extend(sorted(cards, key=lambda _: self._random()))
        return pack.pop()


@dataclass(frozen=True)
class Noun:
    """A noun with its gender and number, in the notation of sample.toml: "fp scènes"."""

    word: str
    feminine: bool
    plural: bool

    @classmethod
    def parse(cls, entry: str) -> Noun:
        """`"f intrigue"` -> Noun("intrigue", feminine=True, plural=False)."""
        code, word = entry.split(" ", 1)
        return cls(word, feminine="f" in code, plural="p" in code)

    def a(self) -> str:
        """With the indefinite article: "une intrigue", "des dialogues"."""
        return f"{'des' if self.plural else 'une' if self.feminine else 'un'} {self.word}"

    def slots(self) -> dict[str, str]:
        """The slots of a frame with this noun as its subject; `{of a}` follows "de"."""
        if self.plural:
            definite, seemed, verbs = f"les {self.word}", "m'ont paru", ("sont", "ne sont", "n'ont")
        else:
            definite = f"{'la' if self.feminine else 'le'} {self.word}"
            seemed, verbs = "m'a paru", ("est", "n'est", "n'a")
        forms = {"the": definite, "a": self.a(), "of a": self.word if self.plural else self.a()}
        forms |= {"seemed": seemed, "is": verbs[0], "has not": verbs[2]}
        return forms | {"is not": f"{verbs[1]} pas", "is never": f"{verbs[1]} jamais"}


def agree(adjective: str, noun: Noun) -> str:
    """The adjective in the gender and number of the noun: "creux/creuse", "fp scènes" -> "creuses"."""
    form, _, feminine = adjective.partition("/")
    if noun.feminine:
        form = feminine or (form if form.endswith("e") else f"{form}e")
    if not noun.plural or form.endswith(("s", "x")):
        return form
    return f"{form[:-2]}aux" if form.endswith("al") else f"{form}s"


def first_person(phrase: str, *, negated: bool = False) -> str:
    """`"l'ai lu | vite"` -> "je l'ai lu vite", or "je ne l'ai pas lu vite"."""
    verb, rest = phrase.split(" | ")
    if not negated:
        return f"je {verb} {rest}"
    # "pas" follows the conjugated verb, so it precedes the participle of a compound tense.
    conjugated, _, participle = verb.rpartition(" ")
    compound = conjugated.endswith(("ai", "suis"))
    return f"je ne {conjugated} pas {participle} {rest}" if compound else f"je ne {verb} pas {rest}"


def sentence(text: str) -> str:
    """With the elisions of French ("de une île" -> "d'une île"), a capital letter and a full stop."""
    text = ELISION.sub(lambda match: f"{match[1][:-1]}'", text)
    return f"{text[0].upper()}{text[1:]}."


def write_sample(destdir: Path, *, reviews: int = REVIEWS, paragraphs: int = PARAGRAPHS) -> None:
    """Write the whole folder, or nothing; valid has a quarter, and test a half, of the `reviews` of train."""
    if reviews < 8 or paragraphs < 100:
        raise UserError(f"--reviews {reviews} --paragraphs {paragraphs}: at least 8 and 100 are needed")
    if destdir.exists() and (not destdir.is_dir() or any(destdir.iterdir())):
        raise UserError(f"{destdir}: not an empty folder; choose another --out or remove it")
    splits = {"train": reviews, "valid": round(reviews / 4), "test": round(reviews / 2)}
    valid = round(paragraphs / 50)
    corpus = {"train": paragraphs - valid, "valid": valid}
    with atomic_folder(destdir) as folder:
        seen: dict[str, int] = {}  # no review occurs twice, in one split or in two
        for split, size in splits.items():
            # A writer of its own for each split: packs of the training split do not affect the test split.
            writer, begun = Writer(f"{SEED}/{split}"), len(seen)
            while (number := len(seen) - begun) < size:
                seen.setdefault(writer.review(number % 2), number % 2)
            of_split = list(seen.items())[begun:]
            atomic_write(folder / f"{split}.input0", "".join(f"{review}\n" for review, _ in of_split))
            atomic_write(folder / f"{split}.label", "".join(f"{label}\n" for _, label in of_split))
        for split, size in corpus.items():
            writer = Writer(f"{SEED}/corpus.{split}", PARAGRAPH)
            documents: list[str] = []
            for start in range(0, size, PARAGRAPHS_PER_DOCUMENT):
                texts = writer.document(len(documents) % 2, min(PARAGRAPHS_PER_DOCUMENT, size - start))
                documents.append("".join(f"{text}\n" for text in texts))
            atomic_write(folder / f"corpus.{split}.txt", "\n".join(documents))
        digests = {path.name: sha256(path) for path in sorted(folder.iterdir())}
        about = {"seed": SEED, "reviews": splits, "paragraphs": corpus, "sha256": digests}
        atomic_write(folder / "sample.json", json.dumps(about, indent=2) + "\n")


@report_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = Parser(
        prog="python -m roberta_small.preprocess.sample",
        description="Generate a small corpus of French reviews for trying everything.",
        examples="example: python -m roberta_small.preprocess.sample --out data/sample",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="new folder to write")
    for name, what, default in (
        ("reviews", "training reviews", REVIEWS), ("paragraphs", "unlabelled paragraphs", PARAGRAPHS),
    ):  # fmt: skip
        parser.add_argument(
            f"--{name}", type=int, default=default, metavar="N", help=f"{what} (default: %(default)s)"
        )
    args = parser.parse_args(arguments)
    write_sample(args.out, reviews=args.reviews, paragraphs=args.paragraphs)
    print(f"{args.out}: sample corpus written (see sample.json)")


if __name__ == "__main__":
    raise SystemExit(main())
