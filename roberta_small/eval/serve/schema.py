"""The JSON of requests and answers. FastAPI checks requests with these classes and describes them in
/openapi.json."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

INTEGRATED_GRADIENTS, LINEAR = "integrated gradients", "linear terms"
"""Values of `ModelInfo.explanation`."""
SEED1, FRENCH = "fairseq/random/seed1", "Un livre captivant."
"""Examples of a model and a text."""


def _check_text(text: Any) -> Any:
    """Raise `ValueError` for what is neither a text nor a pair of texts: with one message, unlike a union."""
    sentences = text if isinstance(text, list) and len(text) == 2 else [text]
    if not all(isinstance(sentence, str) for sentence in sentences):
        raise ValueError("not a string, or two strings for a sentence pair")
    try:
        "".join(sentences).encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"not Unicode: character {error.start} is half of a surrogate pair; correct the text"
        ) from None
    return text


Pair = Annotated[list[str], Field(min_length=2, max_length=2)]
Text = Annotated[str | Pair, BeforeValidator(_check_text)]
Probabilities = dict[str, float]


class Query(BaseModel):
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
    text: Text | None = Field(
        default=None, description="One text. For a model of sentence pairs, a list of the two sentences."
    )
    texts: Annotated[list[Text], Field(min_length=1, fail_fast=True)] | None = Field(
        default=None, description="Several texts, each as in `text`. /version has their maximum number."
    )
    model: str | None = Field(
        default=None,
        description="Name of a model in /version. Default: `default` of /version, if there is one.",
    )
    explain: bool = Field(
        default=False, description="Whether to compute the contribution of each word. Not for the ensemble."
    )

    @model_validator(mode="after")
    def _one_of_text_and_texts(self) -> Self:
        if (self.text is None) == (self.texts is None):
            raise ValueError("one of text and texts is required, and not both")
        return self


class Prediction(BaseModel):
    """The prediction for one text. Fields that do not apply are absent."""

    label: str | list[str] | float = Field(
        description="The most probable class. Of a multi-label model, the classes whose probability is at "
        "least their threshold; of a regression, the number.",
        examples=["pos"],
    )
    probabilities: Probabilities | None = Field(
        default=None,
        description="The probability of each class; absent for a regression.",
        examples=[{"neg": 0.04, "pos": 0.96}],
    )
    std: float | Probabilities | None = Field(
        default=None,
        description="Ensemble: standard deviation of the label's probability over its members; of the "
        "number, or of the probability of each class of a multi-label model.",
        examples=[0.02],
    )
    members: dict[str, Probabilities | float] | None = Field(
        default=None,
        description="Ensemble: the probabilities, or the number, of each member.",
        examples=[{SEED1: {"neg": 0.04, "pos": 0.96}}],
    )
    note: str | None = Field(
        default=None,
        description="What is suspicious about the text: it is empty, most of its tokens are unknown, or a "
        "sentence pair was truncated.",
        examples=["empty"],
    )
    tokens: int = Field(description="Tokens of the text, with special symbols.", examples=[9])
    tokens_read: int = Field(
        description="Tokens that the model reads: fewer if the text was truncated.", examples=[9]
    )
    tokens_unknown: int = Field(
        description="Those of `tokens_read` that are not in the vocabulary.", examples=[0]
    )
    words: list[tuple[str, float]] | None = Field(
        default=None,
        description="With `explain`: each word, and its contribution to the label (negative: against it).",
        examples=[[["livre", 0.1], ["captivant.", 1.7]]],
    )


class Predictions(BaseModel):
    """The predictions for the texts of a request, in their order."""

    model: str = Field(description="Name of the model.", examples=[SEED1])
    predictions: list[Prediction]


class ModelInfo(BaseModel):
    """A model, or the ensemble of all models."""

    name: str = Field(description="Value of `model` in a request.", examples=[SEED1])
    kind: str = Field(
        description="Kind of the labels: single_label_classification, multi_label_classification or "
        "regression.",
        examples=["single_label_classification"],
    )
    classes: list[str] = Field(description="Empty for a regression.", examples=[["neg", "pos"]])
    thresholds: Probabilities | None = Field(
        default=None,
        description="Of a multi-label model: the least probability with which each class is predicted.",
    )
    pairs: bool = Field(description="Whether the model classifies sentence pairs.")
    method: str | None = Field(description="Method of the run. null without a run.", examples=["fairseq"])
    init: str | None = Field(description="Initialization of the run.", examples=["random"])
    seed: int | None = Field(description="Random seed of the run.", examples=[1])
    sha256: str | None = Field(description="SHA-256 of the checkpoint.")
    explanation: Literal["integrated gradients", "linear terms"] | None = Field(
        description="What `explain` computes. null if it is not possible."
    )
    members: list[str] | None = Field(
        default=None, description="Models of the ensemble, whose mean it predicts."
    )


class Limits(BaseModel):
    """The limits of a request."""

    texts: int = Field(description="Texts of a request.")
    characters: int = Field(description="Characters of a text; of a pair, both sentences together.")
    bytes: int = Field(description="Bytes of the body.")
    seconds: float = Field(description="Time until the answer.")
    waiting: int = Field(description="Unfinished texts of a model.")


class Version(BaseModel):
    """The program and its models."""

    version: str = Field(description="Version of fairseq-roberta-small.", examples=["2.0.0"])
    models: list[ModelInfo]
    default: str | None = Field(description="The model of a request without `model`.")
    limits: Limits


class Health(BaseModel):
    """The server answers requests."""

    status: Literal["ok"] = "ok"


class Error(BaseModel):
    """Why there is no result."""

    error: str = Field(examples=["texts: 65 texts, at most 64 (--max-texts); send several requests"])
