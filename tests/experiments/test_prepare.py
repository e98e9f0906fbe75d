"""`--data FILE`: which folder a file becomes, with which tokenizer, and what is rejected before."""

import functools
import gzip
import json
import re
import shlex
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import sentencepiece

from roberta_small.common import manifest
from roberta_small.common.data_folder import read_report
from roberta_small.common.errors import UserError
from roberta_small.common.files import SHIPPED, sha256
from roberta_small.experiments.__main__ import main
from roberta_small.experiments.inputs.files import symbols as file_symbols
from roberta_small.preprocess import dataset
from roberta_small.preprocess.__main__ import main as preprocess
from roberta_small.preprocess.download import command as download
from roberta_small.preprocess.tokenization.choice import MODEL, locate
from tests.support import tiny_tokenizers
from tests.support.labelled_files import texts, tokenizer, write_csv
from tests.support.parsed import train_settings

RANDOM = ["--inits", "random", "--seeds", "1"]
RUN1 = Path("runs/fairseq/random/seed1")


def write_reviews(path, labels=("very bad", "good")):
    return write_csv(path, [(text, labels[i % len(labels)]) for i, text in enumerate(texts())])


@pytest.fixture
def reviews(here):
    write_reviews("reviews.csv")
    return here


def folder_of(*words):
    return train_settings(["--inits", "random", *map(str, words)], {}).prepare()


def prepared():
    return sorted(path.name for path in Path("data").iterdir())


def test_a_file_is_prepared_before_the_plan_and_found_again(reviews, sweep):
    code, out, err = sweep("--data", "reviews.csv", *RANDOM)
    assert (code, err) == (0, "")
    (name,) = prepared()
    assert name.startswith("reviews-")
    assert len(name) == len("reviews-") + 8
    data = Path("data", name)
    assert manifest.read(RUN1)["data"]["path"] == str(data)
    assert read_report(data)["labels"] == ["good", "very bad"]
    for fact in ("'text'", "'label'", "'very bad'", str(data)):
        assert fact in out[: out.index("state")]
    before = (data / "preprocess.json").stat().st_mtime_ns
    code, out, _ = sweep("--data", "reviews.csv", *RANDOM)
    assert code == 0
    assert (prepared(), (data / "preprocess.json").stat().st_mtime_ns) == ([name], before)
    for fact in ("'text'", "reviews.csv", str(data), "skipped"):
        assert fact in out
    (data / "text/train.label").write_text("good\n")
    with pytest.raises(UserError, match=str(data)):
        folder_of("--data", "reviews.csv")


def test_the_folder_depends_on_content_and_options(reviews):
    made = functools.partial(folder_of, "--tokenizer", tokenizer())
    first = made("--data", "reviews.csv")
    assert made("--data", reviews / "reviews.csv") == first
    assert made("--data", "./reviews.csv", "--text-column", "text", "--valid", "5") != first
    second = made("--data", "reviews.csv", "--data-seed", "2")
    assert (second / "text/test.input0").read_text() != (first / "text/test.input0").read_text()
    with open("reviews.csv", "a") as stream:
        stream.write("un livre,good\n")
    assert made("--data", "reviews.csv") != first
    assert len(prepared()) == 4


def test_soft_labels_are_part_of_the_data(reviews, sweep, capfd):
    record = {"text": "Un roman", "probabilities": {"very bad": 0.75, "good": 0.25}}
    Path("soft.jsonl").write_text(json.dumps(record) + "\n")
    first = folder_of("--data", "reviews.csv")
    words = ["--data", "reviews.csv", "--soft-labels", "soft.jsonl"]
    code, out, _ = sweep(*words, *RANDOM, "--", "--criterion", "sentence_classification")
    assert code == 0
    assert "soft labels: 1 further training example" in out
    assert "targets of the texts with soft labels: their probabilities" in out
    words += ["--out", "others"]
    stock = sweep(*words, *RANDOM, "--dry-run", "--", "--criterion", "sentence_prediction")[1]
    capfd.readouterr()
    assert main(["train", *words, "--method", "tfidf", "--dry-run"]) == 0
    for printed in (stock, capfd.readouterr().out):
        assert "targets of the texts with soft labels: the most probable class" in printed
    data = manifest.read(RUN1)["data"]
    assert data["path"] != str(first)
    assert "label/train.soft.npy" in data["sha256"]


@pytest.mark.parametrize("name", ["mes critiques: été.csv", "-.csv.gz"])
def test_any_file_name_gives_a_folder_name(here, name):
    write_reviews(name.removesuffix(".gz"))
    if name.endswith(".gz"):
        Path(name).write_bytes(gzip.compress(Path(name.removesuffix(".gz")).read_bytes()))
    data = folder_of(f"--data={name}", "--tokenizer", tokenizer())
    assert not set(data.name) & set(": ")
    assert data.name[0] not in ".-"


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["--data", "review.csv"], ["review.csv: "]),
        (["--data", "reviews.txt"], ["reviews.txt: ", ".csv"]),
        (["--data", "reviews.csv", "--text-column", "body"], ["'body'", "'text'"]),
        (["--data", "reviews.csv", "--test", "gone.csv"], ["--test gone.csv"]),
        (["--data", "reviews.csv", "--valid", "-3"], ["--valid -3"]),
        (["--data", "reviews.csv", "--soft-labels", "gone.jsonl"], ["--soft-labels gone.jsonl"]),
        (["--data", "bin", "--soft-labels", "reviews.csv"], ["--soft-labels", "--data bin"]),
        (["--data", "reviews.csv", "--pretrained", "model.pt"], ["model.pt: ", "--tokenizer"]),
        (["--data", "reviews.csv", "--tokenizer", "./gone.model"], ["./gone.model"]),
        (["--data", "reviews.csv", "--dict", "gone.txt"], ["--dict gone.txt", "--tokenizer"]),
        (["--data", "reviews.csv", "--pretrained", "gone.pt"], ["gone.pt: ", "--pretrained"]),
        (["--data", "reviews.csv", "--pretrained", "single.csv"], ["--pretrained single.csv: a file of"]),
        (["--data", "single.csv"], ["single.csv", "'good'"]),
        (["--data", "bin", "--valid", "0.2", "--text-column", "t"], ["--text-column, --valid", "--data bin"]),
    ],
)
def test_mistakes_end_with_one_error_before_anything_is_written(reviews, sweep, words, facts):
    write_reviews("single.csv", labels=("good",))
    Path("reviews.txt").write_text("un livre\n")
    code, _, err = sweep(*words)
    assert code == 1
    assert err.count("\n") == 1
    assert all(fact in err for fact in facts)
    assert not Path("runs").exists()
    assert not Path("data").exists() or prepared() == []


@pytest.mark.parametrize(
    "words", [["--recipe", "gone"], ["--out", "quick.txt"], ["--seeds", "x"], ["--", "--seed", "1"]]
)
def test_mistakes_in_the_settings_of_the_runs_end_before_the_preparation(reviews, sweep, words):
    assert sweep(*RANDOM, "--data", "reviews.csv", *words)[0] == 1
    assert not Path("data").exists()


def test_of_two_processes_one_prepares_the_file(reviews, monkeypatch):
    calls, original = [], dataset.prepare

    def slow(*args, **kwargs):
        calls.append(args)
        time.sleep(0.3)
        return original(*args, **kwargs)

    monkeypatch.setattr(dataset, "prepare", slow)
    threads = [threading.Thread(target=folder_of, args=("--data", "reviews.csv")) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert len(prepared()) == 1


def sentencepiece_folder(folder, seed=1):
    """A checkpoint with a SentencePiece model and the dictionary of its tokens."""
    Path(folder).mkdir()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(tiny_tokenizers.lines(seed=seed)),
        model_prefix=f"{folder}/own",
        vocab_size=45,
        minloglevel=2,
    )
    Path(folder, "own.model").rename(Path(folder, MODEL))
    model = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/{MODEL}")
    # Half of the tokens, so that the dictionary is not the default one.
    tokens = [model.id_to_piece(i) for i in range(3, len(model), 2)]
    Path(folder, "dict.txt").write_text("".join(f"{token} 1\n" for token in tokens), encoding="utf-8")
    Path(folder, "model.pt").write_bytes(b"weights")
    return tokens


def symbols(data):
    lines = (data / "input0/dict.txt").read_text(encoding="utf-8").splitlines()
    return [line.rpartition(" ")[0] for line in lines]


@pytest.mark.parametrize("given", ["a", "a/model.pt"])
def test_without_an_option_the_tokenizer_is_that_of_the_checkpoint(reviews, given):
    tokens = sentencepiece_folder("a")
    data = train_settings(["--data", "reviews.csv", "--pretrained", given], {}).prepare()
    assert symbols(data) == tokens
    settings = train_settings(["--data", "reviews.csv", "--inits", f"own={given}", "random"], {})
    assert settings.prepare() == data
    assert list(settings.given) == ["own", "random"]


def test_the_tokenizer_of_a_pretrained_model_is_that_of_its_text(reviews):
    """A folder of pretrain.sh, whose manifest names its data, whose report names the SentencePiece model."""
    tokens = sentencepiece_folder("a")
    Path("corpus").mkdir()
    Path("corpus/dict.txt").write_bytes(Path("a/dict.txt").read_bytes())
    report = {"options": {"sentencepiece_model": f"a/{MODEL}"}, "sha256": {}, "files": {}}
    Path("corpus/preprocess.json").write_text(json.dumps(report))
    Path("pré").mkdir()
    content = {"schema": 1, "status": "finished", "arm": "pretrain", "init": "random", "seed": 1}
    manifest.write(Path("pré"), content | {"recipe": "p", "command": [], "data": {"path": "corpus"}})
    Path("pré/model.pt").write_bytes(b"weights")
    data = train_settings(["--data", "reviews.csv", "--pretrained", "pré/model.pt"], {}).prepare()
    assert symbols(data) == tokens


def test_a_sentencepiece_model_gets_the_dictionary_of_the_checkpoint(reviews):
    tokens = sentencepiece_folder("a")
    Path("a", MODEL).rename("spm.model")
    with pytest.raises(UserError) as caught:
        folder_of("--data", "reviews.csv", "--inits", "own=a")
    assert all(fact in str(caught.value) for fact in ("a: ", "--tokenizer", "--dict a/dict.txt"))
    words = ["--data", "reviews.csv", "--inits", "own=a", "--tokenizer", "spm.model"]
    assert symbols(folder_of(*words)) == tokens
    assert folder_of(*words, "--dict", "a/dict.txt") == folder_of(*words)


def test_checkpoints_with_different_tokenizers_are_an_error(reviews):
    sentencepiece_folder("a")
    shutil.copytree("a", "b")
    sentencepiece_folder("c", seed=2)
    words = ["--data", "reviews.csv", "--inits", "one=a"]
    assert folder_of(*words) == folder_of(*words, "two=b")
    with pytest.raises(UserError) as caught:
        folder_of(*words, "two=c")
    assert all(fact in str(caught.value) for fact in ("one", "two", "a/model.pt", "c/model.pt"))


def test_the_shipped_weights_bring_dictionary_and_tokenizer(reviews, shared_data, monkeypatch):
    monkeypatch.setattr(download, "xlmr_tokenizer", lambda: shared_data / "xlmr" / MODEL)
    data = train_settings(["--data", "reviews.csv", "--inits", "pretrained"], {}).prepare()
    named = train_settings(["--data", "reviews.csv", "--pretrained", "roberta_small_fr"], {})
    assert named.prepare() == data
    assert symbols(data) == file_symbols(SHIPPED / "dict.txt")
    assert sha256(data / "tokenizer" / MODEL) == sha256(shared_data / "xlmr" / MODEL)


def test_a_folder_of_the_same_name_is_not_the_shipped_weights(reviews):
    tokens = sentencepiece_folder("roberta_small_fr")
    data = train_settings(["--data", "reviews.csv", "--pretrained", "roberta_small_fr"], {}).prepare()
    assert symbols(data) == tokens


def test_without_a_network_the_message_has_a_command_that_takes_a_local_copy(reviews, tmp_path, monkeypatch):
    monkeypatch.setenv("RS_CACHE", str(tmp_path / "cache"))
    sentencepiece_folder("xlmr")
    model = Path("xlmr", MODEL).absolute()
    (source,) = download.SOURCES["xlmr"]
    digest = download.Digest("sha256", sha256(model))
    monkeypatch.setitem(download.SOURCES, "xlmr", (replace(source, files={MODEL: digest}),))

    def fetch(url, target, digest):
        raise UserError(f"{url}: no connection")

    with monkeypatch.context() as patch:
        patch.setattr(download, "fetch", fetch)
        with pytest.raises(UserError) as caught:
            train_settings(["--data", "reviews.csv", "--pretrained", "roberta_small_fr"], {}).prepare()
    assert "--tokenizer" in str(caught.value)
    words = shlex.split(re.search(r"roberta-small (download xlmr .*?), or", str(caught.value))[1])
    words[words.index("FOLDER")] = str(model.parent)
    assert not preprocess(words)
    located = locate("roberta_small_fr")
    assert locate(str(SHIPPED)) == located
    assert located.model.read_bytes() == model.read_bytes()
    assert located.dictionary == SHIPPED / "dict.txt"


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        ([], ["--data", "--text"]),
        (["--data", "reviews.csv", "--text", "text"], ["--data", "--text"]),
        (["--text", "text", "--valid", "3"], ["--valid", "--text text"]),
        (["--data", "bin"], ["bin: ", "--text"]),
        (["--data", "gone"], ["gone: "]),
        (["--data", "reviews.csv", "--label-column", "stars"], ["'stars'", "'label'"]),
        (["--data", "reviews.csv", "--ngrams", "2", "1"], ["--ngrams 2 1: "]),
    ],
)
def test_mistakes_with_tfidf(reviews, capsys, words, facts):
    assert main(["train", "--method", "tfidf", *words]) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert all(fact in captured.err for fact in facts)
    assert not Path("runs").exists()
