"""Text to probabilities (classifier.py, texts.py, network.py) against the task and the trainer."""

import numpy as np
import pytest
import torch

from roberta_small.common.errors import UserError
from roberta_small.eval import SentenceClassifier
from tests.support.tiny_runs import make_causal_run, make_data, make_run


def rows_of(trainer, split="test"):
    """The ids of the split as loaded by the task, in the order of its text, and the collated batch."""
    dataset = trainer.task.load_dataset(split)
    batch = dataset.collater([dataset[i] for i in range(len(dataset))])
    tokens, lengths = batch["net_input"]["src_tokens"], batch["net_input"]["src_lengths"]
    rows = {int(i): tokens[at, : lengths[at]] for at, i in enumerate(batch["id"])}
    return [rows[i].numpy() for i in range(len(rows))], batch


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--max-positions", "9"],
        ["--max-positions", "9", "--keep-eos", "--separator-token", "6"],
        ["--max-positions", "256", "--shorten-method", "none"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("kind", ["trained", "pairs"])
def test_ids_equal_those_of_the_task(request, tmp_path, flags, kind):
    made = request.getfixturevalue(kind)
    trainer, run = made.trainer, made.run
    if flags:
        run = tmp_path / "run"
        trainer = make_run(made.data, run, *flags)
    texts = made.texts
    if kind == "pairs":
        texts = list(zip(texts, (made.root / "test.input1").read_text("utf-8").splitlines(), strict=True))
    classifier = SentenceClassifier.from_run(run)
    assert classifier.pairs == (kind == "pairs")
    ours, (theirs, _) = classifier.encode(texts), rows_of(trainer)
    assert len(ours) == len(theirs) == 31
    for a, b in zip(ours, theirs, strict=True):
        assert np.array_equal(a, b)


def trainers_probabilities(trainer):
    """Of the test split, in the order of its text."""
    _, batch = rows_of(trainer)
    head = "sentence_classification_head"
    with torch.no_grad():
        logits, _ = trainer.model.eval()(
            **batch["net_input"], features_only=True, classification_head_name=head
        )
    return torch.softmax(logits, -1)[np.argsort(batch["id"].numpy())].numpy()


def test_probabilities_equal_the_trainers_validation(trained):
    ours = SentenceClassifier.from_run(trained.run, max_tokens=50).probabilities(trained.texts)
    np.testing.assert_allclose(ours, trainers_probabilities(trained.trainer), atol=1e-6)
    assert ours.std(axis=0).min() > 1e-4  # the probabilities differ, so their order is tested


def test_probabilities_of_another_architecture_equal_the_trainers(trained, tmp_path):
    flags = ["--arch", "roberta_base", "--encoder-attention-heads", "4", "--layer-norm-eps", "0.5"]
    trainer = make_run(trained.data, tmp_path / "run", *flags)
    ours = SentenceClassifier.from_run(tmp_path / "run").probabilities(trained.texts)
    np.testing.assert_allclose(ours, trainers_probabilities(trainer), atol=1e-6)


@pytest.mark.parametrize(("arch", "pooling"), [("causal_lm_small", "mean"), ("causal_roberta_small", "last")])
def test_probabilities_of_left_to_right_classifiers(trained, tmp_path, arch, pooling):
    trainer = make_causal_run(trained.data, tmp_path / "run", arch, "--pooling", pooling)
    ours = SentenceClassifier.from_run(tmp_path / "run", max_tokens=50).probabilities(trained.texts)
    np.testing.assert_allclose(ours, trainers_probabilities(trainer), atol=1e-6)
    assert ours.std(axis=0).min() > 1e-4


def test_predictions_are_named_and_in_order(trained):
    classifier = SentenceClassifier.from_run(trained.run)
    assert classifier.classes == ["neg", "pos"]
    predictions = classifier.predict(trained.texts)
    assert [p.index for p in predictions] == list(range(31))
    alone = [classifier.predict([text])[0] for text in trained.texts]
    for a, b in zip(predictions, alone, strict=True):
        assert a.probabilities == pytest.approx(b.probabilities, abs=1e-6)
        assert sum(a.probabilities.values()) == pytest.approx(1)
    assert classifier.predict([]) == []


def test_empty_text_is_predicted_and_line_break_is_a_space(trained):
    classifier = SentenceClassifier.from_run(trained.run)
    empty, blank, broken, spaced = classifier.encode(["", "  ", "un\nlivre", "un livre"])
    assert empty.tolist() == blank.tolist() == [0, 2]
    assert broken.tolist() == spaced.tolist()
    assert len(classifier.predict(["", ""])) == 2


def test_batches_are_halved_if_the_memory_of_a_gpu_does_not_suffice(trained, monkeypatch):
    classifier = SentenceClassifier.from_run(trained.run)
    texts = ["un livre", "un roman captivant", "le livre", "captivant", "un"]
    expected = classifier.probabilities(texts)
    forward, sizes = classifier.network.model.forward, []

    def limited(tokens_BL, **options):
        sizes.append(len(tokens_BL))
        if len(tokens_BL) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(tokens_BL, **options)

    monkeypatch.setattr(classifier.network.model, "forward", limited)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    most = 2
    np.testing.assert_allclose(classifier.probabilities(texts), expected, atol=1e-6)
    assert max(sizes) > most
    most = 0
    with pytest.raises(UserError, match="out of GPU memory"):
        classifier.probabilities(texts)


def test_lone_surrogate_and_wrong_type_are_errors(trained):
    classifier = SentenceClassifier.from_run(trained.run)
    with pytest.raises(UserError, match="surrogate"):
        classifier.predict(["\ud800"])
    with pytest.raises(UserError, match=r"^text 2: tuple "):
        classifier.predict(["a", ("a", "b")])


def test_notes(trained):
    classifier = SentenceClassifier.from_run(trained.run)
    texts = ["un livre", "", "  ", "漢字 Ω", "un livre 漢字", "漢字 Ω un"]
    notes = classifier.classify(texts).encoded.notes
    assert notes[:5] == ["", "empty", "empty", "unknown tokens: 100 %", ""]
    # Of the three words, "un" is one token, and so is each unknown word.
    tokens = [
        symbol
        for symbol in classifier.text_input.encoder.model.encode(texts[5], out_type=str)
        if symbol != "▁"
    ]
    unknown = [symbol for symbol in tokens if symbol not in classifier.text_input.encoder.dictionary.index]
    assert notes[5] == f"unknown tokens: {100 * len(unknown) / len(tokens):.0f} %"


def test_a_pair_with_an_empty_sentence_is_noted(pairs):
    classifier = SentenceClassifier.from_run(pairs.run)
    texts = [("un livre", "une histoire"), ("un livre", ""), ("un", "漢字 Ω 漢字"), ("", "")]
    notes = classifier.classify(texts).encoded.notes
    assert [notes[0], notes[1], notes[3]] == ["", "empty", "empty"]
    assert notes[2].startswith("unknown tokens: ")
    with pytest.raises(UserError, match=r"^text 1: int "):
        classifier.predict([("a", 1)])


def test_apostrophes_are_normalized_as_in_the_data(tmp_path):
    data = make_data(tmp_path, normalize_apostrophes=True)
    make_run(data, tmp_path / "run")
    typographic, plain = SentenceClassifier.from_run(tmp_path / "run").encode(["j’ai lu", "j'ai lu"])
    assert typographic.tolist() == plain.tolist()
