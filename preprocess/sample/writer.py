"""The writer of the sample corpus: it fills sentence frames so that the whole text expresses one opinion.

No single word determines the label of a text: an expression of either polarity occurs in
texts of both labels, because a writer who liked the book may deny a fault ("n'est pas ennuyeux"),
concede one ("malgré un rythme lent, ...") or contradict others ("à en croire la presse, ...").
"""

from __future__ import annotations

import random
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from roberta_small.preprocess.sample.frames import AFFIRM, DENY, KINDS, NEUTRAL, OPINIONS, SENTENCES
from roberta_small.preprocess.sample.grammar import Noun, agree, first_person, masculine, predicate, sentence
from roberta_small.preprocess.sample.words import ASPECTS, NEGATIVE

SLOT = re.compile(r"\{([+-]?)([\w ]+)\}")


@dataclass(frozen=True)
class Mix:
    """How the opinion of a text is put together."""

    weights: dict[str, int]
    """Of the sentence patterns (`sample_frames.SENTENCES`)."""
    denial_rate: float
    """Fraction of clauses that deny the opposite instead of stating the opinion."""
    sentences: tuple[int, int]
    """Fewest and most sentences of opinion, the verdict not counted."""
    verdict_rate: float
    """Fraction of texts that end with what the reader did: "Bref, je l'ai offert à ma sœur."."""


# Reviews are hard: much is denied, conceded or reported. Paragraphs teach: like goes with like.
REVIEW_MIX = Mix(
    weights={"plain": 6, "echo": 4, "concession": 4, "reported": 2, "expected": 1, "compared": 1},
    denial_rate=0.24,
    sentences=(3, 4),
    verdict_rate=0.4,
)
PARAGRAPH_MIX = Mix(
    weights={"plain": 5, "echo": 8, "concession": 1, "compared": 1},
    denial_rate=0.05,
    sentences=(2, 3),
    verdict_rate=0.8,
)


class Writer:
    """Writes texts; all that is random comes from one generator.

    Choices are drawn without replacement from shuffled packs, one pack per label: all expressions are equally
    frequent, and no neutral word correlates with a label. Only `Random.random` is used, whose numbers are
    guaranteed to be the same in every version of Python.
    """

    def __init__(self, rng: random.Random, mix: Mix) -> None:
        self.rng = rng
        self.mix = mix
        self.patterns = [name for name, weight in mix.weights.items() for _ in range(weight)]
        self.label = NEGATIVE
        self.packs: dict[Hashable, list[str]] = {}

    def review(self, label: int) -> str:
        """A labelled review: how the book was met, what it tells, opinions."""
        self.label = label
        return " ".join([self.neutral("met"), self.neutral("told"), *self.opinions()])

    def document(self, label: int, paragraphs: int) -> list[str]:
        """Unlabelled paragraphs by one reader of one opinion."""
        self.label = label
        first, *others = (" ".join([self.mark(), *self.opinions()]) for _ in range(paragraphs))
        return [f"{self.neutral('met')} {first}", *others]

    def neutral(self, name: str) -> str:
        """A sentence without opinion."""
        return sentence(self.fill(self.distribute(name, NEUTRAL[name]), self.label))

    def mark(self) -> str:
        """A short sentence with the mark that the reader gives."""
        return sentence(self.fill(self.distribute("mark", SENTENCES["mark"]), self.label))

    def opinions(self) -> list[str]:
        """The sentences that express the label."""
        fewest, most = self.mix.sentences
        count = fewest + int(self.rng.random() * (most - fewest + 1))
        patterns: list[str] = []
        for _ in range(count):
            name = self.distribute("pattern", self.patterns)
            patterns.append("plain" if name in patterns else name)  # one comparison a text is enough
        if self.rng.random() < self.mix.verdict_rate:
            patterns.append("verdict")
        return [sentence(self.fill(self.distribute(name, SENTENCES[name]), self.label)) for name in patterns]

    def fill(self, frame: str, sense: int) -> str:
        """The frame with its slots filled so that it says `sense`."""
        aspect = Noun.parse(self.distribute("aspect", ASPECTS))
        slots = aspect.slots()

        def slot(match: re.Match[str]) -> str:
            sign, name = match.groups()
            if name in slots:
                return slots[name]
            if not sign:
                return self.fill(self.distribute(name, NEUTRAL[name]), sense)
            return self.say(name, 1 - sense if sign == "-" else sense, aspect)

        return SLOT.sub(slot, frame)

    def say(self, name: str, sense: int, aspect: Noun) -> str:
        """What goes into a slot with a sign: a clause, or an expression in its right form."""
        match name:
            case "clause":
                return self.clause(self.distribute(("clause", sense), KINDS), sense)
            case "claim":  # what anyone could say
                return self.clause(self.distribute(("claim", sense), ("predicate", "noun")), sense)
            case "remark":  # something minor
                return self.clause("adjective", sense)
            case "deed":
                return self.clause("reader", sense)
            case "adjective":
                return agree(self.opinion("adjective", sense), aspect)
            case "masculine adjective":
                return masculine(self.opinion("adjective", sense))
            case "noun":
                return Noun.parse(self.opinion("noun", sense)).a()
            case "feeling" | "grade" | "quality":
                return self.opinion(name, sense)
            case "predicate" | "not predicate":
                return predicate(self.opinion("predicate", sense), negated=name.startswith("not"))
            case "reader" | "not reader":
                return first_person(self.opinion("reader", sense), negated=name.startswith("not"))
        raise KeyError(name)

    def clause(self, kind: str, sense: int) -> str:
        """A clause that says `sense` with an expression of this kind."""
        way, frames = ("deny", DENY) if self.rng.random() < self.mix.denial_rate else ("affirm", AFFIRM)
        return self.fill(self.distribute((way, kind), frames[kind]), sense)

    def opinion(self, kind: str, polarity: int) -> str:
        """An expression as listed, not yet in its right form."""
        return self.distribute((kind, polarity), OPINIONS[kind][polarity])

    def distribute(self, name: Hashable, cards: Sequence[str]) -> str:
        """The next card of the current label's pack, shuffled anew when it is empty."""
        pack = self.packs.setdefault((self.label, name), [])
        if not pack:
            pack.extend(sorted(cards, key=lambda _: self.rng.random()))
        return pack.pop()
