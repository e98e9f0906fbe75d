"""From a CSV file and a model of others to runs, predictions, and a model of Transformers again."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from roberta_small.common import manifest
from roberta_small.common.predictions import read
from roberta_small.eval import SentenceClassifier
from roberta_small.eval.__main__ import main as evaluate
from roberta_small.experiments.__main__ import main as experiments
from roberta_small.export.__main__ import main as export
from roberta_small.preprocess.__main__ import main as preprocess
from tests.support import preloaded, tiny_models, tiny_tokenizers

ROOT = Path(__file__).parents[1]
CLASSES = {"very bad", "good"}
FAMILIES = {"bert": True, "distilbert": False, "electra": True, "flaubert": False, "camembert": False}
"""Families, and whether their data are pairs."""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RS_CACHE", str(tmp_path / "cache"))


def train(*words):
    command = [preloaded.python(), "-m", "roberta_small.experiments", "train", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize(("family", "pairs"), FAMILIES.items())
def test_every_family_goes_the_whole_way(tmp_path, monkeypatch, family, pairs):
    monkeypatch.chdir(tmp_path)
    tiny_models.write(tmp_path / "encoder", family, "encoder")
    tiny_tokenizers.write_csv(tmp_path / "reviews.csv", sorted(CLASSES), pairs)
    words = ["--text-column", "text", *(("--pair-column", "text2") if pairs else ())]
    assert preprocess(["prepare", "reviews.csv", *words, "--tokenizer", "encoder", "--out", "data"]) == 0
    options = ["--data", tmp_path / "data", "--pretrained", tmp_path / "encoder", "--inits", "pretrained"]
    options += ["--seeds", "1", "--out", tmp_path / "runs", "--device", "cpu"]
    flags = ["--", "--max-epoch", "1", "--precision", "fp32", "--lr", "1e-3", "--keep-eos"]
    plan = train(*options, *flags)
    assert f"converted from {tmp_path / 'encoder'}" in plan
    assert "--max-positions 3" in plan  # fewer than in the recipe
    assert ("--token-types" in plan) == (pairs and family in ("bert", "electra"))
    run = tmp_path / "runs/fairseq/pretrained/seed1"
    recorded = manifest.read(run)["checkpoint"]
    assert recorded["source"] == str(tmp_path / "encoder")
    assert f"initialization: weights of {recorded['path']}" in (run / "train.log").read_text()

    texts = ["un livre pas bon", "le film est captivant", ""]
    asked = list(zip(texts, reversed(texts), strict=True)) if pairs else texts
    classifier = SentenceClassifier.from_run(run)
    wanted_NK = torch.from_numpy(classifier.probabilities(asked)).float()
    assert export(["transformers", str(run), "--out", str(tmp_path / "exported")]) == 0
    network = AutoModelForSequenceClassification.from_pretrained(tmp_path / "exported").eval()
    assert network.config.model_type == family
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "exported")
    columns = [list(column) for column in zip(*asked, strict=True)] if pairs else [asked]
    inputs = tokenizer(*columns, padding=True, truncation=True, return_tensors="pt")
    if family == "distilbert":
        inputs.pop("token_type_ids", None)
    with torch.no_grad():
        found_NK = network(**inputs).logits.softmax(-1)
    assert classifier.classes == [network.config.id2label[k] for k in range(2)]
    torch.testing.assert_close(found_NK, wanted_NK, atol=1e-5, rtol=0)

    assert export(["onnx", str(run), "--out", str(tmp_path / "model.onnx")]) == 0
    graph_NK = SentenceClassifier.from_run(tmp_path / "model.onnx").probabilities(asked)
    torch.testing.assert_close(torch.from_numpy(graph_NK).float(), wanted_NK, atol=1e-5, rtol=0)
    assert evaluate(["evaluate", "--checkpoint", "runs", "--write-predictions"]) == 0

    for method in ("transformers", "lora") if family in tiny_models.OTHERS else ("transformers",):
        assert "(from the cache)" in train("--method", method, *options, *flags[:-1])
        run = tmp_path / f"runs/{method}/pretrained/seed1"
        assert manifest.read(run)["checkpoint"]["source"] == str(tmp_path / "encoder")
        if family == "camembert":
            config = json.loads((run / "model/config.json").read_text())
            assert (config["bos_token_id"], config["eos_token_id"]) == (5, 6)
        lines = [
            (tmp_path / f"data/text/test.input{i}").read_text("utf-8").splitlines() for i in range(1 + pairs)
        ]
        asked = list(zip(*lines, strict=True)) if pairs else lines[0]
        found = SentenceClassifier.from_run(run).predict(asked)
        for ours, theirs in zip(found, read(run / "predictions-test.jsonl"), strict=True):
            assert ours.probabilities == pytest.approx(theirs.probabilities, abs=1e-4)


@pytest.mark.parametrize(
    ("config", "fact"),
    [
        ({"model_type": "albert", "architectures": ["AlbertModel"]}, "'albert' cannot be converted"),
        ({"model_type": "bert", "hidden_act": "silu", "architectures": ["BertModel"]}, "silu"),
    ],
    ids=["albert", "activation"],
)
def test_what_cannot_be_represented_is_refused_before_data_are_prepared(
    tmp_path, monkeypatch, capsys, config, fact
):
    monkeypatch.chdir(tmp_path)
    tiny_tokenizers.write_csv(tmp_path / "reviews.csv", sorted(CLASSES))
    tiny_tokenizers.bert(tmp_path / "model")
    (tmp_path / "model/config.json").write_text(json.dumps(config))
    assert experiments(["train", "--data", "reviews.csv", "--pretrained", "model"]) == 1
    assert re.search(rf"model: .*{fact}", capsys.readouterr().err)
    assert not (tmp_path / "data").exists()


PAGE = ROOT / "docs/how-to/which-encoder.md"


@pytest.mark.long
def test_the_commands_of_the_page_on_encoders_run(tmp_path):
    """As written, with small models in place of those on the hub, and of a published checkpoint."""
    tiny_models.write(tmp_path / "encoder", "bert", "encoder")
    tiny_tokenizers.write_csv(tmp_path / "reviews.csv", sorted(CLASSES))
    tiny_models.write(tmp_path / "source", "roberta", vocab_size=4 + 20 + 1)
    (tmp_path / "source/dict.txt").write_text("".join(f"{letter} 1\n" for letter in "ACDEFGHIKLMNPQRSTVWY"))
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt"):
        (tmp_path / "source" / name).unlink(missing_ok=True)
    assert export(["fairseq", str(tmp_path / "source"), "--out", str(tmp_path / "checkpoint.pt")]) == 0
    sequences = [("EVQLVES" * (1 + i % 3), sorted(CLASSES)[i % 2]) for i in range(60)]
    rows = [f"{text}{'ACDE'[i % 4]}{i % 7 * 'G'},{label}" for i, (text, label) in enumerate(sequences)]
    (tmp_path / "sequences.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    spaced = [f"{' '.join(row.split(',')[0])},{row.split(',')[1]}" for row in rows]
    (tmp_path / "tokenized.csv").write_text("\n".join(["text,label", *spaced]) + "\n")
    page = PAGE.read_text(encoding="utf-8").partition("## Other sizes and flags")[0]
    blocks = re.findall(r"^```\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    commands = [line for block in blocks for line in block.splitlines()]
    assert len(commands) == 10
    (tmp_path / "unlabelled.txt").write_text("Un roman.\nUne histoire banale.\n", encoding="utf-8")
    for command in commands:
        words = command.replace("intfloat/multilingual-e5-small", str(tmp_path / "encoder"))
        words = words.replace("--seeds 1 2 3", "--seeds 1").replace("--epochs 4", "--epochs 1")
        if "probed=" in words:
            words += " --epochs 1"
        if "sequences" in words or "tokenized" in words:
            words += f" --out {'runs-' + words.split()[3]} --epochs 1"
        words = words.replace("roberta-small", f"{preloaded.python()} -m roberta_small", 1)
        done = subprocess.run(words, shell=True, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    (data,) = (tmp_path / "data").glob("reviews-*/label/train.soft.npy")
    recorded = manifest.read(tmp_path / "runs/soft/random/seed1")["data"]
    assert (tmp_path / recorded["path"] / "label/train.soft.npy").samefile(data)
    assert recorded["sha256"]["label/train.soft.npy"]
