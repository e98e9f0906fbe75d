"""Configurations of others: a model is read as Transformers reads it, or the entry is named."""

import json
import logging
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from roberta_small.common import families
from roberta_small.common.errors import UserError
from roberta_small.common.label_kinds import REGRESSION, SINGLE_LABEL
from roberta_small.eval import SentenceClassifier
from roberta_small.export.transformers.folder import load_pretrained
from roberta_small.export.transformers.to_fairseq import convert_back
from tests.support import tiny_models

NAMES = {"0": "bad", "1": "so so", "2": "good"}
ORDINARY = {
    "return_dict": [False], "output_attentions": [True], "output_hidden_states": [True],
    "chunk_size_feed_forward": [1, 16], "torchscript": [True], "use_cache": [False], "use_mems": [True],
    "tie_word_embeddings": [False], "torch_dtype": ["float16", "none"], "pad_token_id": [0, -1, None],
    "bos_token_id": [None, 2], "eos_token_id": [[2], None], "initializer_range": [0, "small"],
    "pruned_heads": [{}, {"0": [1]}], "attn_implementation": ["flash_attention_2"], "is_decoder": [True],
    "add_cross_attention": [True], "is_encoder_decoder": [True], "per_layer_config": [{"0": {"n_heads": 1}}],
    "quantization_config": [{"quant_method": "bitsandbytes"}], "label2id": [{"bad": 1}, {}], "type": ["x"],
    "id2label": [NAMES, list(NAMES.values()), {"0": "a"}, {"0": "a", "1": "a", "2": "b"}, "a", [], None],
    "num_labels": [3, 5, "three"], "problem_type": [SINGLE_LABEL, REGRESSION, "ranking", ["a"]],
    "num_hidden_layers": [1, 0, "2"], "n_layers": [1, 3], "num_attention_heads": [1, 3, 0], "n_heads": [4],
    "type_vocab_size": [1, 0], "max_position_embeddings": [2, 20], "vocab_size": [10], "dropout": [2, "0.1"],
    "hidden_act": ["relu", "swish", ["gelu"]], "activation": ["relu", "x"], "gelu_activation": [False],
    "layer_norm_eps": [0.1, "1e-5"], "embedding_size": [8], "sinusoidal_pos_embds": [True], "asm": [True],
    "sinusoidal_embeddings": [True], "use_lang_emb": [False], "lang_id": [3], "layerdrop": [0.5],
    "summary_use_proj": [False], "summary_proj_to_labels": [False], "summary_activation": ["tanh"],
    "auto_map": [{"AutoConfig": "a.b"}], "task_specific_params": [{"x": {}}], "architectures": [None, "Bert"],
}  # fmt: skip
"""Entry -> values that are found in files, have another meaning in another family, or are mistakes."""
ENTRIES = [(key, value) for key, values in ORDINARY.items() for value in values]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Family -> folder, content of config.json, and logits, when it is first needed."""
    logging.getLogger("transformers").setLevel(logging.CRITICAL)
    made = {}

    def get(family):
        if family not in made:
            folder = tmp_path_factory.mktemp("models") / family
            named = {"id2label": dict(enumerate(NAMES.values())), "label2id": None}
            model = tiny_models.write(folder, family, "classifier", **named)
            made[family] = folder, json.loads((folder / "config.json").read_text()), output(model)[0]
        return made[family]

    return get


def output(model):
    with torch.no_grad():
        return model.eval()(torch.arange(5, 23).reshape(2, 9), attention_mask=torch.ones(2, 9).long())


@given(st.sampled_from(list(families.FAMILIES)), st.lists(st.sampled_from(ENTRIES), max_size=3).map(dict))
def test_a_configuration_is_read_as_by_transformers_or_refused_by_name(models, family, changes):
    folder, config, wanted_BK = models(family)
    (folder / "config.json").write_text(json.dumps(config | changes))
    loaded, message = None, ""
    try:
        loaded = load_pretrained(folder)
    except UserError as error:
        message = str(error)
    if loaded is None:
        assert str(folder) in message
        assert changes
        return
    if loaded.labels is None:
        assert changes.get("problem_type") == REGRESSION or "architectures" in changes
        return
    try:
        reference = AutoModelForSequenceClassification.from_pretrained(folder, attn_implementation="eager")
        wanted_BK = output(reference)[0]
    except Exception:  # Transformers cannot read it
        if len(changes) > 1:
            return  # one of the others may change the logits
        reference = None
    torch.testing.assert_close(output(loaded.model).logits, wanted_BK, atol=1e-5, rtol=1e-5)
    if reference is not None and loaded.labels.kind.has_classes:
        assert dict(enumerate(loaded.labels.classes)) == reference.config.id2label


def test_a_model_with_one_token_type_classifies_as_in_transformers(tmp_path):
    changes = {"type_vocab_size": 1, "return_dict": False, "chunk_size_feed_forward": 3}
    model = tiny_models.write(tmp_path / "source", "bert", "classifier", **changes)
    assert not convert_back(tmp_path / "source", tmp_path / "new/model.pt").notes
    texts = ["le livre n'est pas bon", "été"]
    inputs = AutoTokenizer.from_pretrained(tmp_path / "source")(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        wanted_BK = model(**inputs)[0].softmax(-1).numpy()
    found_BK = SentenceClassifier.from_run(tmp_path / "new/model.pt").probabilities(texts)
    np.testing.assert_allclose(found_BK, wanted_BK, atol=1e-6)


TWO = {"0": "a", "1": "b"}


@pytest.mark.parametrize(
    "changes",
    [
        {"id2label": {"0": "a", "1": "a"}},
        {"id2label": ["a", "b"]},
        {"id2label": {"1": "a", "2": "b"}},
        {"id2label": {"0": "a", "1": None}},
        {"id2label": TWO, "num_labels": 3},
        {"id2label": TWO, "label2id": {"a": 1, "b": 0}},
    ],
    ids=str,
)
def test_names_of_classes_that_have_no_single_reading_are_refused(changes):
    with pytest.raises(UserError, match=r"config\.json: .*id2label") as error:
        families.labels_of(changes, "config.json")
    remedy = json.loads(re.findall(r"\{[^{}]*\}", str(error.value))[-1])
    assert families.labels_of({"id2label": remedy}, "config.json").classes == tuple(remedy.values())


def test_names_that_transformers_gives_by_itself_are_no_names():
    config = {"id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "num_labels": 3}  # as by versions before 3
    wanted = AutoConfig.for_model("bert", **config).id2label
    assert dict(enumerate(families.labels_of(config, "config.json").classes)) == wanted
