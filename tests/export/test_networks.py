"""RoBERTa in fairseq and Transformers: logits against stock fairseq, sizes, weights, unsupported models."""

import pytest
import torch
from transformers import RobertaForSequenceClassification

from roberta_small.common.errors import UserError
from roberta_small.common.label_kinds import Labels
from roberta_small.eval.network import read_checkpoint
from roberta_small.export.transformers.networks import converted, source_of
from tests.support.exported_runs import HEAD, PAD, dictionary_of, padded_ids, stock_model
from tests.support.tiny_runs import make_run

BEST, LABELS = "checkpoint_best.pt", Labels.single(["neg", "pos"])


@pytest.mark.parametrize("flags", [[], ["--activation-fn", "relu", "--encoder-layers", "3"]], ids=str)
def test_logits_of_a_classifier_equal_stock_fairseqs(trained, tmp_path, flags):
    data, run = trained
    if flags:
        run = tmp_path
        make_run(data, run, *flags, updates=1)
    dictionary = dictionary_of(data / "input0/dict.txt")
    model = converted(source_of(read_checkpoint(run / BEST)), LABELS)
    assert isinstance(model, RobertaForSequenceClassification)
    ids_BL = padded_ids(len(dictionary))
    with torch.no_grad():
        wanted_BK, _ = stock_model(run / BEST, dictionary)(ids_BL, classification_head_name=HEAD)
        found_BK = model(ids_BL, attention_mask=ids_BL != PAD).logits
    assert wanted_BK.std() > 1e-3
    torch.testing.assert_close(found_BK, wanted_BK, atol=1e-6, rtol=0)


def test_an_encoder_alone_keeps_its_embeddings_and_is_no_language_model(masked_lm, tmp_path):
    state = torch.load(masked_lm[1], weights_only=False)
    state["model"] = {name: w for name, w in state["model"].items() if "lm_head" not in name}
    torch.save(state, tmp_path / "encoder.pt")
    source = source_of(read_checkpoint(tmp_path / "encoder.pt"))
    found = source.model().state_dict()
    for name, weight in state["model"].items():
        assert torch.equal(found[name], weight), name
    with pytest.raises(UserError, match=r"encoder\.pt: an encoder without classification head and LM head"):
        converted(source)


def test_dropout_and_positions_are_those_of_training(trained, tmp_path):
    dropout = ("--dropout", "0.3", "--attention-dropout", "0.2", "--pooler-dropout", "0.15")
    make_run(trained[0], tmp_path, *dropout)
    config = converted(source_of(read_checkpoint(tmp_path / BEST)), LABELS).config
    assert config.hidden_dropout_prob == 0.3
    assert config.attention_probs_dropout_prob == 0.2
    assert config.classifier_dropout == 0.15
    assert config.max_position_embeddings == 34
    assert config.id2label == {0: "neg", 1: "pos"}


def argument(name, value):
    return lambda state: setattr(state["cfg"]["model"], name, value)


def without_dense_layer(state):
    state["model"] = {name: w for name, w in state["model"].items() if f"{HEAD}.dense" not in name}


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (argument("arch", "transformer_lm"), "'transformer_lm'"),
        (argument("arch", "roberta_prenorm"), "'roberta_prenorm'"),
        (argument("encoder_normalize_before", True), "--encoder-normalize-before"),
        (argument("untie_weights_roberta", True), "--untie-weights-roberta"),
        (argument("pooler_activation_fn", "relu"), "--pooler-activation-fn"),
        (argument("activation_fn", "gelu_fast"), "--activation-fn gelu_fast"),
        (argument("encoder_layers", 5), "layers"),
        (argument("head", "linear"), "--head"),
        (without_dense_layer, "--head"),
        (lambda state: state["model"].clear(), "token embeddings"),
        (lambda state: state["model"].update({"classification_heads.other.x": torch.ones(1)}), "2 .*other"),
    ],
)
def test_unsupported_and_inconsistent_checkpoints_are_errors(trained, tmp_path, change, fact):
    path, state = tmp_path / "changed.pt", torch.load(trained[1] / BEST, weights_only=False)
    change(state)
    torch.save(state, path)
    with pytest.raises(UserError, match=fact) as error:
        source_of(read_checkpoint(path))
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
