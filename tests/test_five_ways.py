"""One classifier asked through the command line, standard input, Python, ONNX and Transformers."""

import io
import json
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from roberta_small.eval import SentenceClassifier
from roberta_small.eval.__main__ import main as evaluation
from roberta_small.export.__main__ import main as export
from roberta_small.preprocess.__main__ import main as preprocess
from tests.support import tiny_tokenizers
from tests.support.tiny_runs import make_data, make_run

WORDS = [*tiny_tokenizers.WORDS, "magnifique", "banal", "…", "漢字", "🙂", "œuvre", "5 €", "\u00a0", "</s>"]
WORDS += ["<mask>", "<pad>", "[SEP]", "<", ">", '"', "'", "’", ",", "\\", "%", "{a}", "  ", "-"]
# A text must not begin as an option, a table or JSON does, all of which are refused.
TEXTS = st.lists(st.sampled_from(WORDS), max_size=30).map(lambda words: " ".join(["un", *words]))


def with_transformers_tokenizer(family):
    def data(root):
        root.mkdir()
        make = tiny_tokenizers.FAMILIES | {"bert": tiny_tokenizers.bert}
        tokenizer = make[family](root / "tokenizer")
        tiny_tokenizers.write_csv(root / "reviews.csv", ("neg", "pos"))
        words = [str(root / "reviews.csv"), "--tokenizer", str(tokenizer), "--out", str(root / "data")]
        assert preprocess(["prepare", *words]) == 0
        return root / "data"

    return data


KINDS = {
    "sentencepiece": (make_data, ("0", "2")),
    "byte-level": (with_transformers_tokenizer("roberta"), ("0", "2")),
    "camembert": (with_transformers_tokenizer("camembert"), ("5", "6")),
    "wordpiece": (with_transformers_tokenizer("bert"), ("0", "-1", "--family", "bert")),
}


@pytest.fixture(scope="module", params=KINDS)
def ways(request, tmp_path_factory):
    """Name of each way -> a function from texts to probabilities by class."""
    root = tmp_path_factory.mktemp(request.param)
    make, (init, separator, *flags) = KINDS[request.param]
    data, run = make(root / "data"), root / "run"
    flags += ["--init-token", init, "--separator-token", separator, "--keep-eos", "--encoder-layers", "1"]
    make_run(data, run, *flags, updates=3)
    assert export(["transformers", str(run), "--out", str(root / "folder")]) == 0
    assert export(["onnx", str(run), "--out", str(root / "model.onnx")]) == 0
    network = AutoModelForSequenceClassification.from_pretrained(root / "folder").eval()
    tokenizer = AutoTokenizer.from_pretrained(root / "folder", trust_remote_code=True)
    in_python = SentenceClassifier.from_run(run)
    graph = SentenceClassifier.from_run(root / "model.onnx")

    def command(words, stdin=""):
        out = io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
            patch.setattr(sys, "stdout", out)
            assert evaluation(["predict", "--checkpoint", str(run), *words]) == 0
        return [json.loads(line)["probabilities"] for line in out.getvalue().splitlines()]

    def named(classifier, texts):
        rows = classifier.probabilities(texts)
        return [dict(zip(classifier.classes, row.tolist(), strict=True)) for row in rows]

    @torch.inference_mode()
    def transformers(texts):
        batch = tokenizer(texts, truncation=True, padding=True, return_tensors="pt")
        rows = network(batch["input_ids"], batch["attention_mask"]).logits.softmax(-1).tolist()
        names = network.config.id2label
        return [{names[k]: value for k, value in enumerate(row)} for row in rows]

    return {
        "command line": lambda texts: command(texts),
        "standard input": lambda texts: command([], "".join(f"{text}\n" for text in texts)),
        "Python": lambda texts: named(in_python, texts),
        "ONNX": lambda texts: named(graph, texts),
        "Transformers": transformers,
    }


@pytest.mark.long  # the parts are in tests/eval and tests/export
@given(texts=st.lists(TEXTS, min_size=1, max_size=5))
def test_every_way_gives_the_same_probabilities(ways, texts):
    found = {name: ask(texts) for name, ask in ways.items()}
    reference = found.pop("Python")
    for name, answers in found.items():
        assert len(answers) == len(texts), name
        for text, wanted, probabilities in zip(texts, reference, answers, strict=True):
            assert probabilities.keys() == wanted.keys(), name
            values = np.array([[wanted[label], probabilities[label]] for label in wanted])
            np.testing.assert_allclose(values[:, 0], values[:, 1], atol=2e-5, err_msg=f"{name}: {text!r}")
