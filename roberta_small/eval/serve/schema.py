"""The JSON of requests and answers. Pydantic checks requests, and FastAPI describes all in /openapi.json."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

SEED1, FRENCH = "fairseq/random/seed1", "Un livre captivant."
"""Examples of a model and a text."""


def _checked(text: Any) -> Any:
    """A text, or a pair as a tuple; `ValueError` for all else, with one message for both."""
    sentences = tuple(text) if isinstance(text, list) and len(text) == 2 else (text,)
    if not all(isinstance(sentence, str) for sentence in sentences):
        raise ValueError("not a string, or two strings for a sentence pair")
    "".join(sentences).encode()  # a UnicodeEncodeError for half of a surrogate pair
    return text if isinstance(text, str) else sentences


Text = Annotated[str | tuple[str, str], BeforeValidator(_checked)]
"""A sentence pair is a list of its two sentences."""
Probabilities = dict[str, float]
Explanation = Literal["integrated gradients", "linear terms"]


class Described(BaseModel):
    """A class whose fields are described by the strings below them."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Query(Described):
    """Texts to classify: `text` or `texts`."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {"text": FRENCH},
                {"texts": [FRENCH, "Je me suis ennuyé."]},
                {"text": FRENCH, "model": SEED1, "explain": True},
                {"text": ["Il pleut.", "Le temps est mauvais."]},
            ]
        },
    )
    text: Text | None = None
    """One text. For a model of sentence pairs, a list of the two sentences."""
    texts: Annotated[list[Text], Field(min_length=1, fail_fast=True)] | None = None
    """Several texts, each as in `text`. /version has their maximum number."""
    model: str | None = None
    """Name of a model in /version. Default: `default` of /version, if there is one."""
    explain: bool = False
    """Whether to compute the contribution of each word. Not for the ensemble."""

    @model_validator(mode="after")
    def _one_of_text_and_texts(self) -> Self:
        if (self.text is None) == (self.texts is None):
            raise ValueError("one of text and texts is required, and not both")
        return self


class Prediction(Described):
    """The prediction for one text. Fields that do not apply are absent."""

    label: str | list[str] | float
    """The most probable class. Of a multi-label model, the classes whose probability is at least their
    threshold; of a regression, the number."""
    probabilities: Probabilities | None = None
    """The probability of each class; absent for a regression."""
    std: float | Probabilities | None = None
    """Ensemble: standard deviation of the label's probability over its members; of the number, or of the
    probability of each class of a multi-label model."""
    members: dict[str, Probabilities | float] | None = None
    """Ensemble: the probabilities, or the number, of each member."""
    note: str | None = None
    """What is suspicious about the text: it is empty, most of its tokens are unknown, or a sentence pair was
    truncated."""
    tokens: int
    """Tokens of the text, with special symbols."""
    tokens_read: int
    """Tokens that the model reads: fewer if the text was truncated."""
    tokens_unknown: int
    """Those of `tokens_read` that are not in the vocabulary."""
    words: list[tuple[str, float]] | None = None
    """With `explain`: each word, and its contribution to the label (negative: against it)."""


class Predictions(Described):
    """The predictions for the texts of a request, in their order."""

    model: str
    """Name of the model."""
    predictions: list[Prediction]


class ModelInfo(Described):
    """A model, or the ensemble of all models."""

    name: str
    """Value of `model` in a request."""
    kind: str
    """Kind of the labels: single_label_classification, multi_label_classification or regression."""
    classes: list[str]
    """Empty for a regression."""
    thresholds: Probabilities | None
    """Of a multi-label model: the least probability with which each class is predicted."""
    pairs: bool
    """Whether the model classifies sentence pairs."""
    method: str | None = None
    """Method of the run. null without a run."""
    init: str | None = None
    """Initialization of the run."""
    seed: int | None = None
    """Random seed of the run."""
    sha256: str | None = None
    """SHA-256 of the checkpoint."""
    explanation: Explanation | None = None
    """What `explain` computes. null if it is not possible."""
    members: list[str] | None = None
    """Models of the ensemble, whose mean it predicts."""


class Limits(Described):
    """The limits of a request."""

    texts: int
    """Texts of a request."""
    characters: int
    """Characters of a text; of a pair, both sentences together."""
    bytes: int
    """Bytes of the body."""
    seconds: float
    """Time until the answer."""
    waiting: int
    """Unfinished texts of a model."""


class Version(Described):
    """The program, its models and the limits of a request."""

    version: str
    """Version of fairseq-roberta-small."""
    models: list[ModelInfo]
    default: str | None
    """The model of a request without `model`."""
    limits: Limits


class Error(Described):
    """Why there is no result."""

    error: str
