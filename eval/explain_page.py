"""A page of explained answers: each text with its words in colour, as it is written."""

from __future__ import annotations

import html
import os
from contextlib import AbstractContextManager
from types import TracebackType

from common.files import atomic_open

from .answers import Answer, Word

HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Which words drove the decisions</title>
<style>
body { font: 16px/1.7 system-ui, sans-serif; max-width: 60rem; margin: 1.5rem auto; padding: 0 1rem;
       color: #1b1b1b; background: #fff; overflow-wrap: anywhere }
article { border-top: 1px solid #ccc; padding: .6rem 0 }
h1 { font-size: 1.35rem } h2 { font-size: 1rem; margin: 0 0 .2rem } p { margin: .2rem 0 }
.word { padding: .1rem .15rem; border-radius: .2rem } .note { color: #555; font-size: .9rem }
.for, .against { --strength: 0; background: rgb(var(--colour) / var(--strength)) }
.for { --colour: 0 136 90 } .against { --colour: 208 70 30; text-decoration: underline dotted }
</style></head><body>
<h1>Which words drove the decisions</h1>
<p class="note">Integrated gradients of the predicted class's log-odds over the embeddings.
<span class="word for" style="--strength:.5">Green</span> words spoke for the predicted class,
<span class="word against" style="--strength:.5">orange</span> underlined ones against it; the stronger the
colour, the more, relative to the strongest word of the text. Point at a word for its score.</p>
"""
TAIL = "</body></html>\n"


class Page(AbstractContextManager):
    """Write answers to the file one by one; it appears when the block ends without an error."""

    def __init__(self, path: str | os.PathLike[str], classes: list[str]) -> None:
        self.classes = classes
        self._file = atomic_open(path)

    def __enter__(self) -> Page:
        self._stream = self._file.__enter__()
        self._stream.write(HEAD)
        self._stream.write(f'<p class="note">Classes: {html.escape(", ".join(self.classes))}</p>\n')
        return self

    def write(self, answer: Answer) -> None:
        """One article."""
        words = answer.words or []
        strongest = max((abs(word.score) for word in words), default=0.0) or 1.0
        marked = " ".join(_span(word, strongest) for word in words) or "<i>(empty)</i>"
        title = f"{answer.index + 1}. {answer.label} ({answer.probabilities[answer.label]:.1%})"
        self._stream.write(f"<article><h2>{html.escape(title)}</h2><p>{marked}</p></article>\n")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._stream.write(TAIL)
        self._file.__exit__(kind, error, trace)


def _span(word: Word, strongest: float) -> str:
    side = "for" if word.score > 0 else "against"
    strength = 0.75 * abs(word.score) / strongest
    text = html.escape(word.text)
    if strength < 0.04:
        return text
    return (
        f'<span class="word {side}" style="--strength:{strength:.2f}" title="{word.score:+.3f}">{text}</span>'
    )
