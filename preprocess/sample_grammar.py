"""The little French grammar of the sample corpus: agreement, elision, articles, negation."""

from __future__ import annotations

from dataclasses import dataclass

VOWELS = "aeiouyâàéèêëîïôûùœh"
ASPIRATED = ("haletant", "hasardeux", "Haddad", "Yann")  # no elision before these


@dataclass(frozen=True)
class Noun:
    """A noun with its gender and number, read from the notation of `sample_words`: "fp scènes"."""

    word: str
    feminine: bool
    plural: bool

    @classmethod
    def parse(cls, entry: str) -> Noun:
        """`"f intrigue"` -> Noun("intrigue", feminine=True, plural=False)."""
        code, word = entry.split(" ", 1)
        return cls(word, feminine="f" in code, plural="p" in code)

    def the(self) -> str:
        """With the definite article: "l'intrigue"."""
        if self.plural:
            return f"les {self.word}"
        return join("la" if self.feminine else "le", self.word)

    def a(self) -> str:
        """With the indefinite article: "une intrigue"."""
        article = "des" if self.plural else "une" if self.feminine else "un"
        return f"{article} {self.word}"


def join(word: str, following: str) -> str:
    """Two words with the elision that French asks for: "de" + "elle" -> "d'elle", "si" + "il" -> "s'il"."""
    elides = following[0].lower() in VOWELS and not following.startswith(ASPIRATED)
    if word == "si":
        elides = following.startswith("il ")
    return f"{word[:-1]}'{following}" if elides else f"{word} {following}"


def agree(adjective: str, noun: Noun) -> str:
    """The adjective in the gender and number of the noun: "creux/creuse", "fp scènes" -> "creuses"."""
    masculine, _, feminine = adjective.partition("/")
    if noun.feminine:
        form = feminine or (masculine if masculine.endswith("e") else f"{masculine}e")
    else:
        form = masculine
    if not noun.plural or form.endswith(("s", "x")):
        return form
    return f"{form[:-2]}aux" if form.endswith("al") else f"{form}s"


def verb(phrase: str, *, negated: bool = False) -> str:
    """ "tient | en haleine" -> "tient en haleine", or "ne tient pas en haleine"."""
    first, rest = (part.strip() for part in phrase.split("|"))
    return f"{join('ne', first)} pas {rest}" if negated else f"{first} {rest}"


def first_person(phrase: str, *, negated: bool = False) -> str:
    """ "l'ai lu | vite" -> "je l'ai lu vite", or "je ne l'ai pas lu vite"."""
    first, rest = (part.strip() for part in phrase.split("|"))
    if not negated:
        return f"{join('je', first)} {rest}"
    auxiliary, _, participle = first.rpartition(" ")
    # "pas" stands after the conjugated verb: before the participle of a compound tense.
    if auxiliary.endswith(("ai", "suis")):
        return f"je {join('ne', auxiliary)} pas {participle} {rest}"
    return f"je {join('ne', first)} pas {rest}"


def sentence(text: str) -> str:
    """A capital letter in front and a full stop behind."""
    return f"{text[0].upper()}{text[1:]}."
