"""What the page shows for one text: classes, probabilities of each seed, notes, and words with their scores.

Everything is returned as plain lists and dictionaries, ready for JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roberta_small.common.errors import UserError, count
from roberta_small.common.predictions import from_probabilities
from roberta_small.eval.classifier import Classified, SentenceClassifier, Text
from roberta_small.eval.ensemble import Ensemble
from roberta_small.eval.predict.explain import check_explainable, explain_texts, is_linear, marked
from roberta_small.preprocess.dictionary import UNK

GRADIENTS = "Contributions to the log-odds of the predicted class: integrated gradients over the embeddings."
LINEAR = "Contributions to the predicted class: the terms of the linear classifier of n-grams (exact)."
WHERE = "text"


class Demonstration:
    """A classifier or an ensemble that classifies one text at a time."""

    def __init__(self, model: SentenceClassifier | Ensemble) -> None:
        """Raises `UserError` if explanations need Captum and it is not installed."""
        self.model = model
        self.members = model.members if isinstance(model, Ensemble) else [model]
        for member in self.members:
            check_explainable(member)

    def settings(self) -> dict[str, Any]:
        """What the page needs before the first text."""
        return {
            "pairs": self.model.pairs,
            "members": [member.run.name if member.run else "classifier" for member in self.members],
            "explanation": [LINEAR if is_linear(member) else GRADIENTS for member in self.members],
        }

    def classify(self, texts: Sequence[str]) -> dict[str, Any]:
        """The prediction for one text, or for the two sentences of a pair.

        `classes` and `probabilities` are in the order of the checkpoint, `members` has the probabilities of
        each checkpoint in this order, and `std` is their sample standard deviation for the predicted class
        (None for one checkpoint). Raises `UserError` for a text that the checkpoint cannot read.
        """
        example = self._example(texts)
        found = self.model.classify([example], where=WHERE)
        (prediction,) = from_probabilities(self.model.classes, found.probabilities)
        each = found.probabilities[None] if found.members is None else found.members
        return {
            "classes": self.model.classes,
            "predicted": prediction.predicted,
            "probabilities": found.probabilities[0].tolist(),
            "members": each[:, 0].tolist(),
            "std": None if found.std is None else float(found.std[0]),
            "notes": self._notes(found),
        }

    def explain(self, texts: Sequence[str], member: int) -> dict[str, Any]:
        """The words of a text, colored by their contribution to the prediction of one checkpoint, as HTML.

        Raises `UserError` as `classify`, and for a checkpoint that does not exist.
        """
        if not 0 <= member < len(self.members):
            raise UserError(f"checkpoint {member}: choose one from 0 to {len(self.members) - 1}")
        classifier, example = self.members[member], self._example(texts)
        found = classifier.classify([example], where=WHERE)
        (words,) = explain_texts(classifier, [example], found.encoded.rows)
        (prediction,) = from_probabilities(classifier.classes, found.probabilities)
        return {
            "predicted": prediction.predicted,
            "probability": prediction.probabilities[prediction.predicted],
            "html": marked(words),
        }

    def _example(self, texts: Sequence[str]) -> Text:
        expected = 2 if self.model.pairs else 1
        if len(texts) != expected:
            raise UserError(f"{count(len(texts), 'text')}: the checkpoint classifies {expected} at a time")
        return tuple(texts) if self.model.pairs else texts[0]

    def _notes(self, found: Classified) -> list[str]:
        """What is suspicious about the text."""
        row, length = found.encoded.rows[0], found.encoded.lengths[0]
        notes = []
        if found.encoded.notes[0] == "empty":
            notes.append("A sentence is empty." if self.model.pairs else "The text is empty.")
        if unknown := int((row == UNK).sum()):
            notes.append(f"Not in the vocabulary, read as <unk>: {count(unknown, 'token')}.")
        if length > len(row):
            notes.append(f"Truncated: the first {len(row):,} of {length:,} tokens are read.")
        return notes
