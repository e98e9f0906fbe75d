"""The little French grammar of the sample corpus: agreement, articles, negation, elision."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Words that lose their vowel before another one, except before an aspirated h or the y of a name.
ELISION = re.compile(
    r"\b(de|la|le|je|ne|me|se|que) (?!haletant|hasardeu|Haddad|Yann)(?=[aeiouyhâàéèêëîïôûùœ])", re.IGNORECASE
)


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

    def a(self) -> str:
        """With the indefinite article: "une intrigue", "des dialogues"."""
        article = "des" if self.plural else "une" if self.feminine else "un"
        return f"{article} {self.word}"

    def slots(self) -> dict[str, str]:
        """What a frame can say with this noun as its subject; `{of a}` is what follows "de"."""
        if self.plural:
            definite = f"les {self.word}"
            verbs = {"is": "sont", "is not": "ne sont pas", "is never": "ne sont jamais", "has not": "n'ont"}
            return {"the": definite, "a": self.a(), "of a": self.word, "seemed": "m'ont paru", **verbs}
        definite = f"{'la' if self.feminine else 'le'} {self.word}"
        verbs = {"is": "est", "is not": "n'est pas", "is never": "n'est jamais", "has not": "n'a"}
        return {"the": definite, "a": self.a(), "of a": self.a(), "seemed": "m'a paru", **verbs}


def masculine(adjective: str) -> str:
    """The form listed first: "creux/creuse" -> "creux"."""
    return adjective.partition("/")[0]


def agree(adjective: str, noun: Noun) -> str:
    """The adjective in the gender and number of the noun: "creux/creuse", "fp scènes" -> "creuses"."""
    form, _, feminine = adjective.partition("/")
    if noun.feminine:
        form = feminine or (form if form.endswith("e") else f"{form}e")
    if not noun.plural or form.endswith(("s", "x")):
        return form
    return f"{form[:-2]}aux" if form.endswith("al") else f"{form}s"


def predicate(phrase: str, *, negated: bool = False) -> str:
    """`"tient | en haleine"` -> "tient en haleine", or "ne tient pas en haleine"."""
    verb, rest = phrase.split(" | ")
    return f"ne {verb} pas {rest}" if negated else f"{verb} {rest}"


def first_person(phrase: str, *, negated: bool = False) -> str:
    """`"l'ai lu | vite"` -> "je l'ai lu vite", or "je ne l'ai pas lu vite"."""
    verb, rest = phrase.split(" | ")
    if not negated:
        return f"je {verb} {rest}"
    # "pas" follows the conjugated verb, so it stands before the participle of a compound tense.
    conjugated, _, participle = verb.rpartition(" ")
    if conjugated.endswith(("ai", "suis")):
        return f"je ne {conjugated} pas {participle} {rest}"
    return f"je ne {verb} pas {rest}"


def elide(text: str) -> str:
    """The elisions that French asks for: "de une île" -> "d'une île", "je ai" -> "j'ai"."""
    return ELISION.sub(lambda match: f"{match[1][:-1]}'", text)


def sentence(text: str) -> str:
    """Elided, with a capital letter in front and a full stop behind."""
    text = elide(text)
    return f"{text[0].upper()}{text[1:]}."
