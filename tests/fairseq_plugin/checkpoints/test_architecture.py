"""The architecture of a checkpoint: read without its weights, and as flags that build the same network."""

import dataclasses

import pytest
import torch
from fairseq import options

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.checkpoints.architecture import (
    Architecture,
    of_arguments,
    read_architecture,
)
from roberta_small.fairseq_plugin.checkpoints.loading import load_checkpoint, read_outline
from tests.support.training import CLASSIFIER, build_trainer, make_old, save

TINY = Architecture(
    causal=False, layers=2, embed=16, ffn=16, heads=2, activation="gelu", pooler_activation="tanh",
    pre_norm=False, embedding_norm=True, layer_norm_eps=1e-5, untied_lm_head=False, learned_positions=True,
    scaled_embeddings=False, pooling="first", head="dense", family="roberta", token_types=False, positions=32,
)  # fmt: skip
LEFT_TO_RIGHT = {"causal": True, "learned_positions": False, "scaled_embeddings": True, "positions": None}
ARCHITECTURES = {
    "default": ([], {}),
    "heads and activation": (
        ["--encoder-attention-heads", "4", "--activation-fn", "relu", "--encoder-ffn-embed-dim", "24"],
        {"heads": 4, "activation": "relu", "ffn": 24},
    ),
    "epsilon and pre-norm": (
        ["--layer-norm-eps", "1e-12", "--encoder-normalize-before"],
        {"layer_norm_eps": 1e-12, "pre_norm": True},
    ),
    "roberta_prenorm": (["--arch", "roberta_prenorm"], {"pre_norm": True, "embedding_norm": False}),
    "roberta_base": (["--arch", "roberta_base"], {}),
    "untied": (["--untie-weights-roberta"], {"untied_lm_head": True}),
    "head": (["--head", "linear"], {"head": "linear"}),
    "pooler": (["--pooler-activation-fn", "relu"], {"pooler_activation": "relu"}),
    "causal_roberta_small": (["--arch", "causal_roberta_small"], {"causal": True}),
    "causal_lm_small": (
        ["--arch", "causal_lm_small"],
        {"activation": "relu", "embedding_norm": False, "untied_lm_head": True, "head": "linear"}
        | LEFT_TO_RIGHT,
    ),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_architecture_is_read_and_its_flags_build_it_again(data, tmp_path, name):
    flags, changes = ARCHITECTURES[name]
    save(build_trainer([data, *CLASSIFIER, *flags])[1], tmp_path / "model.pt")
    found = read_architecture(tmp_path / "model.pt")
    pooling = "last" if found.causal else "first"
    assert found == dataclasses.replace(TINY, **({"pooling": pooling} | changes))
    words = [word for group in found.flags().values() for word in group]
    parsed = options.parse_args_and_arch(
        options.get_training_parser(), ["data", "--task", "sentence_classification", *words]
    )
    assert found.differences(of_arguments(parsed)) == []


def test_a_checkpoint_without_a_head_has_no_pooler(classifier, tmp_path):
    state = load_checkpoint(classifier)
    state["model"] = {k: v for k, v in state["model"].items() if not k.startswith("classification_heads")}
    torch.save(state, tmp_path / "model.pt")
    found = read_architecture(tmp_path / "model.pt")
    assert found == dataclasses.replace(TINY, pooler_activation=None, pooling=None, head=None)
    assert found.differences(dataclasses.replace(TINY, pooler_activation="relu")) == []


def test_weights_are_not_read_and_old_formats_are_known(classifier, tmp_path):
    """Without its last bytes, the old format has lost weights; a changed weight is a wrong checksum."""
    state = load_checkpoint(classifier)
    make_old(state)
    torch.save(state, tmp_path / "old-zipped.pt")
    assert read_architecture(tmp_path / "old-zipped.pt") == TINY
    path = tmp_path / "old.pt"
    torch.save(state, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes()[:-1000])
    assert read_architecture(path) == TINY
    assert all(weight.device.type == "meta" for weight in read_outline(path)["model"].values())
    content = bytearray(classifier.read_bytes())
    weight = load_checkpoint(classifier)["model"]["encoder.sentence_encoder.embed_tokens.weight"]
    content[content.index(weight.numpy().tobytes())] ^= 1
    (tmp_path / "changed.pt").write_bytes(content)
    assert read_architecture(tmp_path / "changed.pt") == TINY
    with pytest.raises(UserError, match=r"changed\.pt: .*corrupt"):
        load_checkpoint(tmp_path / "changed.pt")


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda state: setattr(state["cfg"]["model"], "encoder_layers", 3), ["is 3", "have 2"]),
        (lambda state: setattr(state["cfg"]["model"], "encoder_ffn_embed_dim", 24), ["24", "16"]),
        (lambda state: setattr(state["cfg"]["model"], "arch", "transformer_lm"), ["'transformer_lm'"]),
        (lambda state: state.update(cfg=None), ["no configuration", "'cfg' or 'args'"]),
        (lambda state: state["model"].clear(), ["encoder_layers", "positions"]),
        (lambda state: state["cfg"].pop("model"), ["no configuration"]),
        (lambda state: state.update(model=3), ["not a fairseq checkpoint"]),
        (lambda state: state.update(cfg="x"), ["not a fairseq checkpoint", "'cfg'"]),
        (lambda state: state.update(cfg=state["cfg"]["model"]), ["not a fairseq checkpoint", "'cfg'"]),
        (lambda state: state["cfg"].update(model=[1]), ["not a fairseq checkpoint", "'cfg.model'"]),
        (lambda state: state["cfg"].update(task="x"), ["not a fairseq checkpoint", "'cfg.task'"]),
        (lambda state: state.update(args=3), ["not a fairseq checkpoint", "'args'"]),
        (lambda state: state.update(extra_state="x"), ["not a fairseq checkpoint", "'extra_state'"]),
    ],
)
def test_an_unusable_checkpoint_is_an_error(classifier, tmp_path, change, facts):
    state = load_checkpoint(classifier)
    change(state)
    torch.save(state, tmp_path / "changed.pt")
    with pytest.raises(UserError) as caught:
        read_architecture(tmp_path / "changed.pt")
    assert all(fact in str(caught.value) for fact in [str(tmp_path / "changed.pt"), *facts]), caught.value


@pytest.mark.parametrize("name", ["model.pt", "model.safetensors"])
def test_a_missing_or_foreign_file_is_an_error(tmp_path, name):
    for content in (None, b"", b"weights"):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=name):
            read_architecture(tmp_path / name)
