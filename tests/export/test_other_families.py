"""BERT, DistilBERT, ELECTRA and FlauBERT through the packed encoder, against Transformers, and back."""

import json
import re

import numpy as np
import pytest
import torch
import transformers
import yaml
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from roberta_small.common import families
from roberta_small.common.errors import UserError
from roberta_small.common.label_kinds import KINDS, MULTI_LABEL, REGRESSION, SINGLE_LABEL
from roberta_small.eval import SentenceClassifier
from roberta_small.eval.network import build_encoder, read_checkpoint
from roberta_small.experiments.inputs import checkpoints
from roberta_small.export.__main__ import main as export
from roberta_small.export.transformers.networks import source_of
from roberta_small.export.transformers.to_fairseq import convert_back
from roberta_small.export.transformers.to_transformers import convert
from roberta_small.fairseq_plugin.checkpoints.architecture import read_architecture
from roberta_small.fairseq_plugin.checkpoints.loading import load_checkpoint
from roberta_small.preprocess.__main__ import main as preprocess
from roberta_small.preprocess.tokenization.transformers_encoder import TransformersEncoder
from tests.support import tiny_models, tiny_tokenizers
from tests.support.tiny_runs import make_run

EVERY = tiny_models.PREFIXES | tiny_models.OTHERS
TEXTS = ["le livre n'est pas bon", "", "été très captivant", "roman " * 40, "l'auteur est déçu"]
CLASSES = {"id2label": {0: "bad", 1: "so so", 2: "good"}, "label2id": {"bad": 0, "so so": 1, "good": 2}}


@pytest.mark.parametrize("family", families.FAMILIES)
def test_the_names_of_layers_are_those_of_the_classifier(tmp_path, family):
    """LoRA adapts these linear layers, and trains the head."""
    model, found = tiny_models.write(tmp_path / "model", family, "classifier"), families.FAMILIES[family]
    linear = [name for name, part in model.named_modules() if isinstance(part, torch.nn.Linear)]
    for name in ("query", "key", "value"):
        assert len([path for path in linear if path.endswith(f".{found.linear(name)}")]) == 2, name
    of_encoder = {f"{model.base_model_prefix}.{name}" for name, _ in model.base_model.named_parameters()}
    of_head = {name.split(".")[0] for name, _ in model.named_parameters() if name not in of_encoder}
    assert of_head <= set(found.head_modules)


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("bert", "BertForPreTraining"),
        ("bert", "BertForTokenClassification"),
        ("electra", "ElectraForPreTraining"),
    ],
)
def test_of_a_model_with_heads_for_another_task_the_encoder_is_used(tmp_path, family, name):
    tiny_models.write(tmp_path / "source", family, "encoder")
    torch.manual_seed(1)
    model = getattr(transformers, name)(AutoConfig.from_pretrained(tmp_path / "source")).eval()
    model.save_pretrained(tmp_path / "source")
    convert_back(tmp_path / "source", tmp_path / "new/model.pt")
    assert_same_hidden_states(model.base_model, tmp_path / "source", tmp_path / "new/model.pt")


def assert_same_hidden_states(model, folder, checkpoint, pairs=False):
    """The packed encoder computes what the model of Transformers does for all tokens but padding.

    The length is the maximum of the model, so that each row of its table of positions is used. Returns the
    plugin's own model, its ids (B, L), and the arguments of Transformers for the same texts.
    """
    kind = model.config.model_type
    longest = model.config.max_position_embeddings - (2 if kind in tiny_models.PREFIXES else 0)
    encoder = TransformersEncoder(str(folder))
    columns = (TEXTS, TEXTS[::-1]) if pairs else (TEXTS,)
    how = {"truncation": True, "max_length": longest, "padding": True, "return_tensors": "pt"}
    theirs = encoder.tokenizer(*columns, **how)
    assert theirs["input_ids"].shape[1] == longest == read_checkpoint(checkpoint).positions
    ids_BL = torch.from_numpy(np.argsort(encoder.order))[theirs["input_ids"]]
    ours = build_encoder(read_checkpoint(checkpoint), torch.device("cpu"), "fp32")
    types = theirs.get("token_type_ids")
    assert (types is not None and types.any()) == (pairs and kind in ("bert", "distilbert", "electra"))
    if kind == "distilbert":
        theirs.pop("token_type_ids", None)
    mask_BL = theirs["attention_mask"].bool()
    with torch.no_grad():
        found, wanted = ours(ids_BL, features_only=True)[0], model(**theirs)[0][mask_BL]
    assert wanted.std() > 0.1
    torch.testing.assert_close(found[mask_BL], wanted, atol=2e-5, rtol=0)
    return ours, ids_BL, theirs


@pytest.mark.parametrize(
    ("family", "kind", "pairs"),
    [
        *((name, kind, kind == "classifier") for name in tiny_models.OTHERS for kind in tiny_models.KINDS),
        *((name, "classifier", True) for name in tiny_models.PREFIXES),  # more in test_families.py
    ],
)
def test_hidden_states_and_logits_equal_those_of_transformers_there_and_back(tmp_path, family, kind, pairs):
    model = tiny_models.write(tmp_path / "source", family, kind, **(CLASSES if kind == "classifier" else {}))
    found = convert_back(tmp_path / "source", tmp_path / "new/model.pt")
    assert found.difference < 1e-5
    places = tmp_path / "source", tmp_path / "new/model.pt"
    ours, ids_BL, theirs = assert_same_hidden_states(model.base_model, *places, pairs)
    mask_BL = theirs["attention_mask"].bool()
    with torch.no_grad():
        if kind == "classifier":
            head = source_of(read_checkpoint(tmp_path / "new/model.pt")).head
            (logits_BK, _) = ours(ids_BL, features_only=True, classification_head_name=head)
            torch.testing.assert_close(logits_BK, model(**theirs).logits, atol=2e-5, rtol=0)
        if kind == "masked-lm" and family != "flaubert":
            scores, _ = ours(ids_BL)
            order = torch.from_numpy(TransformersEncoder(str(tmp_path / "source")).order)
            theirs_V = model(**theirs).logits[mask_BL][:, order]
            torch.testing.assert_close(scores[mask_BL][:, : len(order)], theirs_V, atol=5e-5, rtol=0)
    if family in tiny_models.OTHERS and kind != "encoder":
        assert_comes_back(tmp_path, model, family, kind)


def assert_comes_back(tmp_path, model, family, kind):
    """The converted model and its tokenizer come back in their own class."""
    if family == "flaubert" and kind == "masked-lm":
        with pytest.raises(UserError, match="LM head of Transformers' Flaubert"):
            convert(tmp_path / "new/model.pt", tmp_path / "again")
        return
    found = convert(tmp_path / "new/model.pt", tmp_path / "again")
    assert found.difference < 1e-5
    again = type(model).from_pretrained(tmp_path / "again").eval()
    tokenizers = [AutoTokenizer.from_pretrained(tmp_path / name) for name in ("source", "again")]
    inputs, others = (
        t(TEXTS, truncation=True, max_length=34, padding=True, return_tensors="pt") for t in tokenizers
    )
    assert inputs["input_ids"].shape[1] == 34
    assert inputs["input_ids"].tolist() == others["input_ids"].tolist()
    if family == "distilbert":
        inputs.pop("token_type_ids", None)
    pair = dict(tokenizers[1]("le livre", "un roman", return_tensors="pt"))
    assert family != "bert" or pair["token_type_ids"].any()
    if family == "distilbert":
        pair.pop("token_type_ids", None)
    with torch.no_grad():
        for each in (inputs, pair):
            torch.testing.assert_close(again(**each).logits, model(**each).logits, atol=2e-5, rtol=0)
    convert_back(tmp_path / "again", tmp_path / "back/model.pt")
    first, second = (load_checkpoint(tmp_path / name / "model.pt") for name in ("new", "back"))
    assert all(found["cfg"]["task"].get("init_token", 0) == 0 for found in (first, second))
    assert first["model"].keys() == second["model"].keys()
    for name, weight in first["model"].items():
        torch.testing.assert_close(second["model"][name], weight, atol=1e-6, rtol=0)


def test_rows_beyond_the_tokenizer_are_dropped_and_missing_ones_are_an_error(tmp_path):
    folder = tmp_path / "source"
    tokens = len(AutoTokenizer.from_pretrained(tiny_tokenizers.bert(tmp_path / "tokenizer")))
    model = tiny_models.write(folder, "bert", "masked-lm", vocab_size=tokens + 7)
    convert_back(folder, tmp_path / "new/model.pt")
    assert read_checkpoint(tmp_path / "new/model.pt").vocabulary == tokens
    assert_same_hidden_states(model.base_model, folder, tmp_path / "new/model.pt")
    tiny_models.write(tmp_path / "fewer", "bert", vocab_size=20)
    with pytest.raises(UserError, match="the model has 20"):
        convert_back(tmp_path / "fewer", tmp_path / "other/model.pt")


@pytest.mark.parametrize(
    ("family", "change", "outputs", "kind"),
    [
        ("bert", {"problem_type": REGRESSION}, 1, REGRESSION),
        ("bert", {}, 1, REGRESSION),
        ("xlm-roberta", {"problem_type": MULTI_LABEL}, 2, MULTI_LABEL),
        ("bert", {}, 2, SINGLE_LABEL),
    ],
)
def test_a_head_is_used_as_what_it_is(tmp_path, family, change, outputs, kind):
    """As in Transformers, one output is a number unless the configuration contains another kind."""
    folder = tmp_path / "source"
    model = tiny_models.write(folder, family, "classifier", num_labels=outputs)
    config = json.loads((folder / "config.json").read_text()) | change
    (folder / "config.json").write_text(json.dumps(config))
    found = convert_back(folder, tmp_path / "new/model.pt")
    assert not found.notes
    classifier = SentenceClassifier.from_run(tmp_path / "new/model.pt")
    assert classifier.labels.kind is KINDS[kind]
    inputs = AutoTokenizer.from_pretrained(folder)(TEXTS[:1], return_tensors="pt", truncation=True)
    inputs.pop("token_type_ids", None)
    with torch.no_grad():
        logits_1K = model(**inputs).logits.double()
    activated = {SINGLE_LABEL: logits_1K.softmax(-1), MULTI_LABEL: logits_1K.sigmoid(), REGRESSION: logits_1K}
    assert classifier.probabilities(TEXTS[:1]) == pytest.approx(activated[kind].numpy(), abs=1e-5)


def test_a_head_for_several_numbers_is_not_used(tmp_path):
    folder = tmp_path / "source"
    tiny_models.write(folder, "bert", "classifier")
    config = json.loads((folder / "config.json").read_text()) | {"problem_type": REGRESSION}
    (folder / "config.json").write_text(json.dumps(config))
    found = convert_back(folder, tmp_path / "new/model.pt")
    assert any("several numbers" in note for note in found.notes)
    assert "classifier.weight" in found.unused
    assert not read_checkpoint(tmp_path / "new/model.pt").is_classifier


def test_an_lm_head_with_a_matrix_of_its_own_is_not_used(tmp_path):
    tiny_models.write(tmp_path / "source", "bert", tie_word_embeddings=False)
    found = convert_back(tmp_path / "source", tmp_path / "new/model.pt")
    assert any("LM head" in note for note in found.notes)
    assert found.random


def test_a_bare_encoder_with_an_untied_head_in_its_configuration_is_a_start(tmp_path, monkeypatch):
    """The configuration concerns a head that the folder does not have."""
    monkeypatch.setenv("RS_CACHE", str(tmp_path / "cache"))
    model = tiny_models.write(tmp_path / "source", "bert", "encoder", tie_word_embeddings=False)
    found = checkpoints.resolve(tmp_path / "source", "--pretrained")
    assert "LM head is not used" not in found.note
    assert not read_architecture(found.path).untied_lm_head
    weights = load_checkpoint(found.path)["model"]
    assert torch.equal(weights[families.TIED], weights[families.TOKENS])
    assert_same_hidden_states(model, tmp_path / "source", found.path)


@pytest.mark.parametrize(
    ("modes", "pooling"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean"),
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "first"),
        ({"pooling_mode": "cls"}, "first"),
    ],
)
def test_the_pooling_of_a_sentence_encoder_is_recorded(tmp_path, modes, pooling):
    """The mean of the default recipe would replace the first token without a word."""
    notes = str(convert_pooling(tmp_path, json.dumps(modes)))
    assert read_checkpoint(tmp_path / "new/model.pt").arguments.pooling == pooling
    assert ("-- --pooling first" in notes) == (pooling == "first")


@pytest.mark.parametrize("content", ["[]", '"mean"', "{", "\xff"])
def test_a_malformed_pooling_is_an_error(tmp_path, content):
    with pytest.raises(UserError, match=r"1_Pooling/config\.json"):
        convert_pooling(tmp_path, content)
    assert not (tmp_path / "new").exists()


def convert_pooling(root, content):
    """Convert a sentence encoder with this 1_Pooling/config.json."""
    tiny_models.write(root / "source", "bert", "encoder")
    (root / "source/1_Pooling").mkdir()
    (root / "source/1_Pooling/config.json").write_text(content, encoding="latin-1")
    return convert_back(root / "source", root / "new/model.pt")


def test_a_layer_after_pooling_is_left_out_with_a_note(tmp_path):
    tiny_models.write(tmp_path / "source", "bert", "encoder")
    modules = [
        {"idx": i, "type": f"sentence_transformers.models.{name}"}
        for i, name in enumerate(["Transformer", "Pooling", "Dense"])
    ]
    (tmp_path / "source/modules.json").write_text(json.dumps(modules[:2]))
    assert "dense layer" not in str(convert_back(tmp_path / "source", tmp_path / "one/model.pt"))
    (tmp_path / "source/modules.json").write_text(json.dumps(modules))
    assert "dense layer after pooling" in str(convert_back(tmp_path / "source", tmp_path / "two/model.pt"))
    (tmp_path / "source/modules.json").write_text("{}{")
    with pytest.raises(UserError, match=r"modules\.json: malformed"):
        convert_back(tmp_path / "source", tmp_path / "three/model.pt")
    assert not (tmp_path / "three").exists()


@pytest.mark.parametrize(
    ("config", "fact"),
    [
        ({"model_type": "albert"}, "projected"),
        ({"model_type": "mpnet"}, "relative"),
        ({"model_type": "deberta-v2"}, "relative"),
        ({"model_type": "modernbert"}, "rotary"),
        ({"model_type": "esm"}, "positions"),
        ({"model_type": "electra", "embedding_size": 128, "hidden_size": 256}, "128"),
        ({"model_type": "flaubert", "pre_norm": True}, "pre_norm"),
        ({"model_type": "bert", "is_decoder": True}, "is_decoder"),
        ({"model_type": "bert", "position_embedding_type": "relative_key"}, "relative_key"),
        ({"model_type": "bert", "hidden_act": "silu"}, "silu"),
        ({"model_type": "distilbert", "activation": ["gelu"]}, "activation is"),
        ({"model_type": "gpt2"}, "supported: roberta"),
    ],
)
def test_what_cannot_be_represented_is_refused_by_name_and_reason(config, fact):
    assert fact in families.refusal(config)


@pytest.mark.parametrize(
    "family", ["bert", *(pytest.param(name, marks=pytest.mark.long) for name in ("roberta", "distilbert"))]
)
def test_a_classifier_with_mean_pooling_comes_back(tmp_path, family):
    """Trained with --pooling mean: a class of this project in the folder, with the same probabilities."""
    folder = tmp_path / "tokenizer"
    make = tiny_tokenizers.FAMILIES | {"bert": tiny_tokenizers.bert}
    make.get(family, tiny_tokenizers.bert)(folder)
    tiny_tokenizers.write_csv(tmp_path / "reviews.csv", ("bad", "good"))
    words = [str(tmp_path / "reviews.csv"), "--tokenizer", str(folder), "--out", str(tmp_path / "data")]
    assert preprocess(["prepare", *words]) == 0
    flags = f"--init-token 0 --separator-token {2 if family == 'roberta' else -1} --keep-eos --pooling mean "
    flags += f"--family {family} --layer-norm-eps 1e-12 --pooler-activation-fn relu --encoder-layers 1"
    make_run(tmp_path / "data", tmp_path / "run", *flags.split(), updates=2)
    found = convert(tmp_path / "run", tmp_path / "folder")
    assert found.difference < 1e-5
    texts = [text for text in TEXTS if text]
    wanted_NK = SentenceClassifier.from_run(tmp_path / "run").probabilities(texts)
    model = AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "folder", trust_remote_code=True
    ).eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "folder")
    inputs = tokenizer(texts, truncation=True, padding=True, return_tensors="pt")
    if family == "distilbert":
        inputs.pop("token_type_ids", None)
    with torch.no_grad():
        output = model(**inputs, labels=torch.zeros(len(texts), dtype=torch.long))
    np.testing.assert_allclose(output.logits.softmax(-1).numpy(), wanted_NK, atol=1e-5)
    assert output.loss > 0
    with pytest.raises(ValueError, match="trust_remote_code"):
        AutoModelForSequenceClassification.from_pretrained(tmp_path / "folder", trust_remote_code=False)
    convert_back(tmp_path / "folder", tmp_path / "back/model.pt")
    again_NK = SentenceClassifier.from_run(tmp_path / "back/model.pt").probabilities(texts)
    np.testing.assert_allclose(again_NK, wanted_NK, atol=1e-5)
    if family == "bert":  # tests/experiments/methods/test_frozen.py writes the graph of one
        return
    assert export(["onnx", str(tmp_path / "run"), "--out", str(tmp_path / "model.onnx")]) == 0
    graph_NK = SentenceClassifier.from_run(tmp_path / "model.onnx").probabilities(texts)
    np.testing.assert_allclose(graph_NK, wanted_NK, atol=1e-5)


@pytest.mark.parametrize("family", ["camembert", "bert"])
def test_the_card_of_a_masked_language_model_has_its_family_and_mask_token(tmp_path, monkeypatch, family):
    tiny_models.write(tmp_path / "source", family)
    convert_back(tmp_path / "source", tmp_path / "new/model.pt")
    convert(tmp_path / "new/model.pt", tmp_path / "again")
    card = (tmp_path / "again/README.md").read_text(encoding="utf-8")
    assert yaml.safe_load(card.split("---\n")[1])["tags"] == [family, "fairseq"]
    assert f"`{EVERY[family]}Model`" in card
    assert "`RobertaModel`" not in card
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "source")
    (usage,) = re.findall(r"^```python\n(.*?)^```", card, flags=re.DOTALL | re.MULTILINE)
    assert tokenizer.mask_token in usage
    monkeypatch.chdir(tmp_path)
    exec(usage)  # the pipeline raises an error for a text without the mask token


def test_a_folder_of_configuration_weights_and_vocabulary_is_converted(tmp_path):
    tiny_models.write(tmp_path / "source", "electra", "classifier", **CLASSES)
    wanted = convert_back(tmp_path / "source", tmp_path / "wanted/model.pt")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "source" / name).unlink(missing_ok=True)
    assert convert_back(tmp_path / "source", tmp_path / "found/model.pt").difference == wanted.difference
    first, second = (
        SentenceClassifier.from_run(tmp_path / name / "model.pt") for name in ("wanted", "found")
    )
    assert first.probabilities(TEXTS).tolist() == second.probabilities(TEXTS).tolist()


@pytest.mark.parametrize(("family", "added"), [("bert", False), ("camembert", True)])
def test_the_card_of_a_classifier_describes_the_written_tokenizer(tmp_path, family, added):
    tiny_models.write(tmp_path / "source", family, "classifier", **CLASSES)
    convert_back(tmp_path / "source", tmp_path / "new/model.pt")
    convert(tmp_path / "new/model.pt", tmp_path / "again")
    card = (tmp_path / "again/README.md").read_text(encoding="utf-8")
    (line,) = [line for line in card.splitlines() if line.startswith("- tokenizer: ")]
    assert f"`{type(AutoTokenizer.from_pretrained(tmp_path / 'source')).__name__}`" in line
    written = [json.loads((tmp_path / n / "tokenizer.json").read_text()) for n in ("source", "again")]
    assert (written[0]["pre_tokenizer"] != written[1]["pre_tokenizer"]) == added == ("pre-tokenizer" in line)
    assert "unchanged" not in line
