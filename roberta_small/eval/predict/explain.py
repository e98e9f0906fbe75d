"""Contributions of words to a prediction: integrated gradients over the embeddings, or linear terms.

The explained value is the log-odds of the predicted class: its logit minus the log-sum-exp of the others. The
integration path is the straight line from zero embeddings (special tokens such as `<s>` and `</s>` keep
theirs) to the embeddings of the text (Sundararajan, Taly and Yan 2017, equation 1). The attributions sum to
the log-odds of the text minus those at the start of the path. A word's score is the sum over its tokens and
their dimensions. All of this is computed in fp32.

A classifier of n-grams (`--arch ngram_classifier`) is linear, and its terms are the contributions
(`NgramHead.contributions`).

B sentences, L tokens, C embedding size, K classes.
"""

from __future__ import annotations

import contextlib
import html
import os
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_open
from roberta_small.common.optional import needed_by
from roberta_small.common.startup import functions_of
from roberta_small.eval.network import Network
from roberta_small.eval.precision import INT8
from roberta_small.eval.predict.output import TextPrediction, Word, Write
from roberta_small.eval.texts import Ids, check_texts
from roberta_small.fairseq_plugin.models.ngrams import NgramClassifier, NgramHead
from roberta_small.preprocess.dictionary import BOS, EOS, WORD_START
from roberta_small.preprocess.readers.lines import normalize
from roberta_small.preprocess.tokenization.transformers_encoder import TransformersEncoder

if TYPE_CHECKING:
    from roberta_small.eval.classifier import SentenceClassifier
    from roberta_small.eval.texts import Text

STEPS = 50
STEPS_PER_BATCH = 10


def explain_texts(
    classifier: SentenceClassifier, texts: Sequence[Text], rows: Sequence[Ids]
) -> Iterator[list[Word]]:
    """The words of each text with their scores; `rows` are its ids. Errors as for `check_explainable`."""
    check_texts(texts)
    check_explainable(classifier)
    return (explain(classifier, text, row) for text, row in zip(texts, rows, strict=True))


def check_explainable(classifier: SentenceClassifier) -> None:
    """Raise `UserError` unless a text has one class and a gradient, and Captum is installed if needed."""
    if not classifier.labels.kind.exclusive:
        raise UserError(
            f"explanations are for models of one class per text, not {classifier.labels.kind.name}"
        )
    if is_linear(classifier):
        return
    if classifier.model.given.precision == INT8:
        raise UserError(f"--precision {INT8}: explanations need gradients; use fp32 or bf16")
    # Without its figures, which import matplotlib.
    figures = functions_of("captum.attr._utils.visualization", "matplotlib", "matplotlib.colors")
    with needed_by("explanations"), figures:
        import captum.attr  # noqa: F401


def is_linear(classifier: SentenceClassifier) -> bool:
    """Whether the contributions are the terms of a linear classifier, not integrated gradients."""
    return isinstance(network_of(classifier).model, NgramClassifier)


def network_of(classifier: SentenceClassifier) -> Network:
    """The network with its weights; raises `UserError` for an ONNX file."""
    if not isinstance(classifier.network, Network):
        raise UserError(
            f"{classifier.model.run.checkpoint}: explanations need a checkpoint, not an ONNX file"
        )
    return classifier.network


def explain(classifier: SentenceClassifier, text: Text, row: Ids) -> list[Word]:
    """The words of one text with their scores, up to the last token that the network reads."""
    scores = attribute(classifier, row).tolist()
    special = special_tokens(classifier)
    dictionary = classifier.text_input.encoder.dictionary
    tokens = iter(_subword_tokens(classifier, text))
    words: list[tuple[str, float]] = []
    for token, score in zip(row.tolist(), scores, strict=True):
        if token in special:
            continue
        # The token as in the text: for a token outside the dictionary, the symbol is `<unk>`.
        written = next(tokens, dictionary.symbols[token])
        if written.startswith(WORD_START) or not words:
            words.append((written.lstrip(WORD_START), score))
        else:
            words[-1] = (words[-1][0] + written, words[-1][1] + score)
    return [Word(word.replace(WORD_START, " "), score) for word, score in words if word]


def special_tokens(classifier: SentenceClassifier) -> set[int]:
    """The ids of the symbols around and between texts: 0 and 2, but 5 and 6 in CamemBERT."""
    text_input = classifier.text_input
    symbols = text_input.encoder.dictionary.symbols
    around = {text_input.format.init_token, text_input.format.separator_token}
    # A run may begin its texts with an ordinary word.
    found = {BOS, EOS} | {token for token in around if token is not None and symbols[token].startswith("<")}
    if isinstance(text_input.encoder, TransformersEncoder):
        found.add(text_input.encoder.separator_token)  # ends a text even if the format has no separator
    return found


def attribute(classifier: SentenceClassifier, row: Ids, steps: int = STEPS) -> Tensor:
    """(L,) attribution of each token of one example, float64 on the CPU; zero for `special_tokens`."""
    network = network_of(classifier)
    head = network.model.classification_heads[network.head]
    if isinstance(head, NgramHead):
        return head.contributions(torch.from_numpy(row).to(network.device))
    from captum.attr import IntegratedGradients

    encoder = network.model.encoder.sentence_encoder
    tokens_1L = torch.from_numpy(row).unsqueeze(0).to(network.device)
    with torch.no_grad():
        embeddings_1LC = encoder.embed_tokens(tokens_1L)
        target = int(log_odds(network, embeddings_1LC, tokens_1L).argmax(dim=-1))
    special_1L = torch.isin(
        tokens_1L, torch.tensor(sorted(special_tokens(classifier)), device=network.device)
    )
    baseline_1LC = embeddings_1LC * special_1L[..., None]

    def forward(embeddings_BLC: Tensor) -> Tensor:
        return log_odds(network, embeddings_BLC, tokens_1L.expand(len(embeddings_BLC), -1))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Captum warns that it sets requires_grad of its input
        attributions_1LC = IntegratedGradients(forward).attribute(
            embeddings_1LC, baseline_1LC, target=target, n_steps=steps, internal_batch_size=STEPS_PER_BATCH
        )
    return attributions_1LC.detach().double().sum(dim=-1)[0].cpu()


def log_odds(network: Network, embeddings_BLC: Tensor, tokens_BL: Tensor) -> Tensor:
    """(B, K) log-odds of each class against all others, for sentences given by their embeddings."""
    head = network.model.classification_heads[network.head]
    logits_BK = head(network.head_input(tokens_BL, embeddings_BLC))
    columns = []
    for k in range(logits_BK.size(-1)):
        others_BK = torch.cat([logits_BK[:, :k], logits_BK[:, k + 1 :]], dim=-1)
        columns.append(logits_BK[:, k] - others_BK.logsumexp(dim=-1))
    return torch.stack(columns, dim=-1)


def _subword_tokens(classifier: SentenceClassifier, text: Text) -> list[str]:
    """The subword tokens as they appear in the text."""
    encoder, found = classifier.model.encoder, []
    for sentence in [text] if isinstance(text, str) else text:
        line = sentence.replace("\n", " ")
        line = normalize(line) if encoder.normalize_apostrophes else line
        if isinstance(encoder, TransformersEncoder):
            found += encoder.written(line)
        else:
            found += " ".join(encoder.model.encode(line, out_type=str)).split()
    return found


STYLE = """.word { padding: .1rem .15rem; border-radius: .2rem }
.for, .against { --strength: 0; background: rgb(var(--hue) / var(--strength)) }
.for { --hue: 0 136 90 } .against { --hue: 208 70 30; text-decoration: underline dotted }"""
"""CSS of `marked`."""
LEGEND = """<span class="word for" style="--strength:.5">Green</span> words contributed to the
predicted class, <span class="word against" style="--strength:.5">orange</span> underlined words against it.
The intensity is relative to the largest score of the text. Hover over a word for its score."""
"""HTML that explains `marked`."""
PAGE_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Contributions of words</title>
<style>
body {{ font: 16px/1.7 system-ui, sans-serif; max-width: 60rem; margin: 1.5rem auto; padding: 0 1rem;
       color: #1b1b1b; background: #fff; overflow-wrap: anywhere }}
article {{ border-top: 1px solid #ccc; padding: .6rem 0 }}
h1 {{ font-size: 1.35rem }} h2 {{ font-size: 1rem; margin: 0 0 .2rem }} p {{ margin: .2rem 0 }}
{style} .note {{ color: #555; font-size: .9rem }}
</style></head><body>
<h1>Contributions of words</h1>
<p class="note">Contributions to the log-odds of the predicted class: integrated gradients over the
embeddings, or the terms of a linear classifier of n-grams. {legend}</p>
"""
PAGE_END = "</body></html>\n"


@contextlib.contextmanager
def explanation_page(path: str | os.PathLike[str], classes: list[str]) -> Iterator[Write]:
    """A block that gets a function, which writes a prediction and its marked words to an HTML page."""
    with atomic_open(path) as stream:
        stream.write(PAGE_HEAD.format(style=STYLE, legend=LEGEND))
        stream.write(f'<p class="note">Classes: {html.escape(", ".join(classes))}</p>\n')

        def write(prediction: TextPrediction) -> None:
            probability = prediction.probabilities[prediction.written]
            title = f"{prediction.index + 1}. {prediction.written} ({probability:.1%})"
            text = marked(prediction.words or [])
            stream.write(f"<article><h2>{html.escape(title)}</h2><p>{text}</p></article>\n")

        yield write
        stream.write(PAGE_END)


def marked(words: Sequence[Word]) -> str:
    """HTML of the words, each colored by its score."""
    strongest = max((abs(word.score) for word in words), default=0.0) or 1.0
    spans = []
    for word in words:
        side = "for" if word.score > 0 else "against"
        strength = 0.75 * abs(word.score) / strongest
        style = f'class="word {side}" style="--strength:{strength:.2f}" title="{word.score:+.3f}"'
        text = html.escape(word.text)
        spans.append(text if strength < 0.04 else f"<span {style}>{text}</span>")
    return " ".join(spans) or "<i>(empty)</i>"
