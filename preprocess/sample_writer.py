"""The writer of the sample corpus: book reviews with a known opinion, one sentence pattern a method.

The opinion of a text (its label) is never in one word: an expression of either polarity occurs in
texts of both labels, because a writer who liked the book may deny a fault ("n'est pas ennuyeux"),
concede one ("malgré un rythme lent, ...") or contradict others ("à en croire la presse, ...").
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from . import sample_words as words
from .sample_grammar import Noun, agree, first_person, join, sentence, verb


@dataclass(frozen=True)
class Mix:
    """How a text is put together."""

    patterns: dict[str, int]
    """Weight of each sentence pattern (methods `Writer.<name>`)."""
    negation_rate: float
    """Share of clauses that say a thing by denying its contrary."""
    sentences: tuple[int, int]
    """Fewest and most sentences of opinion in a text."""
    verdict_rate: float
    """Share of texts that end with what the reader did: "Bref, je l'ai offert à ma sœur."."""


REVIEW_MIX = Mix(
    patterns={"plain": 4, "echo": 1, "concession": 4, "reported": 2, "expected": 2, "compared": 2},
    negation_rate=0.25,
    sentences=(2, 3),
    verdict_rate=0.3,
)
PARAGRAPH_MIX = Mix(
    patterns={"plain": 6, "echo": 6, "concession": 1, "reported": 1, "expected": 1, "compared": 1},
    negation_rate=0.1,
    sentences=(2, 3),
    verdict_rate=0.7,
)

# How often each kind of opinion is used: about in proportion to the length of its list.
KINDS = ("adjective",) * 8 + ("predicate",) * 4 + ("noun",) * 4 + ("feeling",) * 2 + ("reader",) * 3
OPINIONS = {
    "adjective": words.ADJECTIVES,
    "predicate": words.PREDICATES,
    "noun": words.NOUNS,
    "feeling": words.FEELINGS,
    "reader": words.READER,
}


class Writer:
    """Writes texts; everything random comes from one generator.

    Choices are dealt like cards: none comes a second time before all have come once. So the rarest
    expression is as frequent as the others, and no neutral word meets one label more by accident
    (each label has its own pack). Only `Random.random` is used: it alone is promised to give the
    same numbers in every version of Python.
    """

    def __init__(self, rng: random.Random, mix: Mix) -> None:
        self.rng = rng
        self.mix = mix
        self.label = words.NEGATIVE
        self.packs: dict[Hashable, list[str]] = {}

    def review(self, label: int) -> str:
        """A labelled review: what the book is, opinions, perhaps a verdict."""
        self.label = label
        return " ".join([*self.introduction(), *self.opinions()])

    def document(self, label: int, paragraphs: int) -> list[str]:
        """Unlabelled paragraphs by one reader of one opinion."""
        self.label = label
        first, *others = (" ".join(self.opinions()) for _ in range(paragraphs))
        return [f"{self.introduction()[0]} {first}", *others]

    # Parts of a text

    def introduction(self) -> list[str]:
        """Two neutral sentences: how the book was met, and what it tells."""
        title = f"« {self.deal('head', words.TITLE_HEADS)} {self.deal('tail', words.TITLE_TAILS)} »"
        author = f"{self.deal('first', words.FIRST_NAMES)} {self.deal('last', words.LAST_NAMES)}"
        genre, occasion = self.deal("genre", words.GENRES), self.deal("occasion", words.OCCASIONS)
        met = self.frame(
            "met",
            f"j'ai lu {title}, {join('de', author)}, {occasion}",
            f"{title} est un {genre} {join('de', author)}, que j'ai lu {occasion}",
            f"lu {occasion} : {title}, un {genre} {join('de', author)}",
            f"{author} signe avec {title} un {genre}, que j'ai ouvert {occasion}",
        )
        character, plot = self.deal("character", words.CHARACTERS), self.deal("plot", words.PLOTS)
        told = self.frame(
            "told",
            f"on y suit {character}, {plot}",
            f"l'auteur y raconte {character}, {plot}",
            f"au centre du livre, {character}, {plot}",
        )
        return [sentence(met), sentence(told)]

    def opinions(self) -> list[str]:
        """The sentences that carry the opinion."""
        fewest, most = self.mix.sentences
        count = fewest + int(self.rng.random() * (most - fewest + 1))
        patterns = [name for name, weight in self.mix.patterns.items() for _ in range(weight)]
        texts = [sentence(getattr(self, self.deal("pattern", patterns))()) for _ in range(count)]
        if self.rng.random() < self.mix.verdict_rate:
            texts.append(sentence(self.verdict()))
        return texts

    # Sentence patterns: each says `self.label`

    def plain(self) -> str:
        """One clause."""
        return self.clause(self.label)

    def echo(self) -> str:
        """Near-synonyms side by side; that expressions joined by "et" agree in polarity is the
        observation of Hatzivassiloglou & McKeown (1997), section 3."""
        aspect = self.aspect()
        first, second, third = (agree(self.opinion("adjective", self.label), aspect) for _ in range(3))
        noun, other = (self.noun(self.label) for _ in range(2))
        be = "sont" if aspect.plural else "est"
        return self.frame(
            "echo",
            f"{aspect.the()} {be} {first}, {second} et {third}",
            f"{aspect.the()} {be} à la fois {first} et {second}",
            f"c'est {noun}, {other} même",
            f"j'ai lu {aspect.a()} {first} et {second}, {noun}",
        )

    def concession(self) -> str:
        """A minor clause of the other opinion; the main clause decides."""
        minor, main = self.clause(1 - self.label), self.clause(self.label)
        aspect = self.aspect()
        adjective = agree(self.opinion("adjective", 1 - self.label), aspect)
        return self.frame(
            "concession",
            f"certes, {minor}, mais {main}",
            f"{main}, même {join('si', minor)}",
            f"malgré {aspect.a()} {adjective}, {main}",
            f"{minor}. Et pourtant, {main}",
            f"{main}, en dépit {join('de', self.some(aspect))} {adjective}",
        )

    def reported(self) -> str:
        """The opinion of others, shared or contradicted."""
        other = self.deal("other", words.OTHERS)
        return self.frame(
            "reported",
            f"à en croire {other}, {self.claim(1 - self.label)} ; je pense le contraire",
            f"{other} parle {join('de', self.noun(1 - self.label))}, et je ne suis pas de cet avis",
            f"à en croire {other}, {self.claim(self.label)} ; je pense la même chose",
            f"{other} parle {join('de', self.noun(1 - self.label))}, mais {self.clause(self.label)}",
        )

    def expected(self) -> str:
        """What was awaited and what came."""
        return self.frame(
            "expected",
            f"je m'attendais à {self.noun(1 - self.label)}, mais {self.clause(self.label)}",
            f"on m'avait annoncé {self.noun(1 - self.label)} ; en fait, {self.clause(self.label)}",
            f"je m'attendais à {self.noun(self.label)}, et {self.clause(self.label)}",
        )

    def compared(self) -> str:
        """This book beside the author's previous one."""
        before = self.opinion("adjective", 1 - self.label).partition("/")[0]
        now = self.opinion("adjective", self.label).partition("/")[0]
        return self.frame(
            "compared",
            f"le précédent était {before}, celui-ci est {now}",
            f"contrairement au précédent, plutôt {before}, ce livre est {now}",
            f"celui-ci est {now}, alors que le précédent était {before}",
            f"comme le précédent, ce livre est {now}",
        )

    def verdict(self) -> str:
        """What the reader did in the end."""
        opener = self.deal("verdict", ("bref", "au final", "en somme", "résultat", "pour conclure"))
        return f"{opener}, {self.say('reader', self.label)}"

    # Clauses

    def clause(self, sense: int) -> str:
        """Any clause that says `sense`."""
        return self.say(self.deal(("kind", sense), KINDS), sense)

    def claim(self, sense: int) -> str:
        """A clause that anyone can say (without "je")."""
        return self.say(self.deal(("claim", sense), ("predicate", "noun")), sense)

    def say(self, kind: str, sense: int) -> str:
        """A clause of this kind that says `sense`, at times by denying the contrary."""
        negated = self.rng.random() < self.mix.negation_rate
        opinion = self.opinion(kind, 1 - sense if negated else sense)
        return getattr(self, f"say_{kind}")(opinion, negated)

    def say_adjective(self, opinion: str, negated: bool) -> str:
        """Something about one aspect of the book."""
        aspect = self.aspect()
        the, adjective = aspect.the(), agree(opinion, aspect)
        if not negated:
            be, seemed = ("sont", "m'ont") if aspect.plural else ("est", "m'a")
            return self.frame(
                "is",
                f"{the} {be} {adjective}",
                f"j'ai trouvé {the} {adjective}",
                f"{the} {seemed} paru {adjective}",
            )
        be, have = ("ne sont", "n'ont") if aspect.plural else ("n'est", "n'a")
        return self.frame(
            "is not",
            f"{the} {be} pas {adjective}",
            f"je n'ai pas trouvé {the} {adjective}",
            f"{the} {be} jamais {adjective}",
            f"{the} {have} rien {join('de', opinion.partition('/')[0])}",
        )

    def say_predicate(self, opinion: str, negated: bool) -> str:
        """What the book does."""
        return f"{self.deal('subject', words.SUBJECTS)} {verb(opinion, negated=negated)}"

    def say_noun(self, opinion: str, negated: bool) -> str:
        """What the book is."""
        noun, subject = Noun.parse(opinion).a(), self.deal("subject", words.SUBJECTS)
        if negated:
            return self.frame("is no", f"ce n'est pas {noun}", f"{subject} n'est pas {noun}")
        return self.frame("is a", f"c'est {noun}", f"{subject} est {noun}", f"j'y ai vu {noun}")

    def say_feeling(self, opinion: str, negated: bool) -> str:
        """How the book was read."""
        with_or_without = "sans" if negated else "avec"
        return self.frame(
            "feeling",
            f"je l'ai lu {with_or_without} {opinion}",
            f"j'ai tourné les pages {with_or_without} {opinion}",
            f"on le lit {with_or_without} {opinion}",
        )

    def say_reader(self, opinion: str, negated: bool) -> str:
        """What the reader did with the book."""
        return first_person(opinion, negated=negated)

    # Words

    def opinion(self, kind: str, polarity: int) -> str:
        """An expression of this kind and polarity, from the pack of the current label."""
        return self.deal((kind, polarity), OPINIONS[kind][polarity])

    def noun(self, polarity: int) -> str:
        """A noun of opinion with its article."""
        return Noun.parse(self.opinion("noun", polarity)).a()

    def aspect(self) -> Noun:
        """Something that a book has."""
        return Noun.parse(self.deal("aspect", words.ASPECTS))

    @staticmethod
    def some(noun: Noun) -> str:
        """What follows "de": "un style" or, in the plural, the bare noun."""
        return noun.word if noun.plural else noun.a()

    def frame(self, name: str, *choices: str) -> str:
        """One of the ways to say it, each as often as the others."""
        return choices[int(self.deal(("frame", name), [str(i) for i in range(len(choices))]))]

    def deal(self, name: Hashable, cards: Sequence[str]) -> str:
        """The next card of the current label's pack, shuffled anew when it is empty."""
        key = (self.label, name)
        if not self.packs.get(key):
            self.packs[key] = sorted(cards, key=lambda _: self.rng.random())
        return self.packs[key].pop()
