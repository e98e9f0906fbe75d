"""The sentences of the sample corpus, as frames with slots.

    {title}             a neutral slot: a frame or a word of the list of that name
    {+clause}           a clause of the same opinion as the frame
    {-clause}           a clause of the other opinion
    {+adjective} ...    an expression of that opinion; an adjective agrees with the frame's aspect
    {-not predicate}    an expression of the other opinion, denied: it says the opinion of the frame
    {the} {is} ...      one aspect of the book ("les dialogues") and what agrees with it

Every frame is neutral: exchange all + and - in it and it is as good a sentence, of the other label.
"""

from __future__ import annotations

from roberta_small.preprocess.sample import words as words

NEUTRAL: dict[str, tuple[str, ...]] = {
    "met": (
        "je ai lu {title}, de {author}, {occasion}",
        "{title} est un {genre} de {author}, que je ai lu {occasion}",
        "lu {occasion} : {title}, un {genre} de {author}",
        "{author} signe avec {title} un {genre}, que je ai ouvert {occasion}",
    ),
    "told": (
        "on y suit {character}, {plot}",
        "l'auteur y raconte l'histoire de {character}, {plot}",
        "au centre du livre, {character}, {plot}",
    ),
    "title": ("« {head} {tail} »",),
    "author": ("{first} {last}",),
    "head": words.TITLE_HEADS,
    "tail": words.TITLE_TAILS,
    "first": words.FIRST_NAMES,
    "last": words.LAST_NAMES,
    "genre": words.GENRES,
    "occasion": words.OCCASIONS,
    "character": words.CHARACTERS,
    "plot": words.PLOTS,
    "other": words.OTHERS,
    "subject": words.SUBJECTS,
}

OPINIONS: dict[str, dict[int, tuple[str, ...]]] = {
    "adjective": words.ADJECTIVES,
    "predicate": words.PREDICATES,
    "noun": words.NOUNS,
    "feeling": words.FEELINGS,
    "reader": words.READER,
    "grade": words.GRADES,
    "quality": words.QUALITIES,
}

# How often a clause uses each kind of opinion: about in proportion to the length of its list.
KINDS = ("adjective",) * 7 + ("predicate",) * 3 + ("noun",) * 3 + ("feeling",) * 2 + ("reader",) * 3

# A clause that affirms an expression of its own opinion ...
AFFIRM: dict[str, tuple[str, ...]] = {
    "adjective": (
        "{the} {is} {+adjective}",
        "je ai trouvé {the} {+adjective}",
        "{the} {seemed} {+adjective}",
    ),
    "predicate": ("{subject} {+predicate}",),
    "noun": ("c'est {+noun}", "{subject} est {+noun}", "je y ai vu {+noun}"),
    "feeling": (
        "je l'ai lu avec {+feeling}",
        "je ai tourné les pages avec {+feeling}",
        "on le lit avec {+feeling}",
    ),
    "reader": ("{+reader}",),
}
# ... and one that says the same by denying an expression of the other.
DENY: dict[str, tuple[str, ...]] = {
    "adjective": (
        "{the} {is not} {-adjective}",
        "je ne ai pas trouvé {the} {-adjective}",
        "{the} {is never} {-adjective}",
        "{the} {has not} rien de {-masculine adjective}",
    ),
    "predicate": ("{subject} {-not predicate}",),
    "noun": ("ce n'est pas {-noun}", "{subject} n'est pas {-noun}"),
    "feeling": (
        "je l'ai lu sans {-feeling}",
        "je ai tourné les pages sans {-feeling}",
        "on le lit sans {-feeling}",
    ),
    "reader": ("{-not reader}",),
}

SENTENCES: dict[str, tuple[str, ...]] = {
    "plain": ("{+clause}",),
    # Expressions joined by "et" agree in polarity (Hatzivassiloglou & McKeown 1997, section 3):
    # this is how a masked-LM learns which go together.
    "echo": (
        "{the} {is} {+adjective}, {+adjective} et {+adjective}",
        "{the} {is} à la fois {+adjective} et {+adjective}",
        "c'est {+noun}, pour ne pas dire {+noun}",
        "{the} {is} {+adjective} et {+adjective} : {+noun}",
    ),
    # The main clause decides, wherever it stands.
    "concession": (
        "certes, {-remark}, mais {+clause}",
        "{+clause}, même si {-remark}",
        "malgré {a} {-adjective}, {+clause}",
        "{-remark}. Et pourtant, {+clause}",
        "{+clause}, en dépit de {of a} {-adjective}",
        "à première vue, {-remark} ; à la réflexion, {+clause}",
    ),
    # Others may be right or wrong.
    "reported": (
        "à en croire {other}, {-claim} ; je pense le contraire",
        "à en croire {other}, {+claim} ; je pense la même chose",
        "{other} parle de {-noun}, et je ne suis pas de cet avis",
        "{other} parle de {-noun}, mais {+clause}",
    ),
    "expected": (
        "je m'attendais à {-noun}, mais {+clause}",
        "on m'avait annoncé {-noun} ; en fait, {+clause}",
        "je m'attendais à {+noun}, et {+clause}",
    ),
    "compared": (
        "le précédent était {-masculine adjective}, celui-ci est {+masculine adjective}",
        "contrairement au précédent, plutôt {-masculine adjective}, ce livre est {+masculine adjective}",
        "celui-ci est {+masculine adjective}, alors que le précédent était {-masculine adjective}",
        "comme le précédent, ce livre est {+masculine adjective}",
    ),
    "mark": (
        "ma note : {+grade} sur cinq",
        "{+grade} sur cinq",
        "un {+quality} livre",
        "un {+quality} moment",
    ),
    "verdict": (
        "bref, {+deed}",
        "au final, {+deed}",
        "en somme, {+deed}",
        "résultat : {+deed}",
        "pour conclure, {+deed}",
    ),
}
