"""fairseq's architecture names on the plugin's model, and on fairseq's own in stock tasks."""

import pytest
import torch
from fairseq import options
from fairseq.models.roberta.model import RobertaModel

from roberta_small.fairseq_plugin.models.packed import PackedTransformerEncoder
from roberta_small.fairseq_plugin.models.roberta import RobertaSmall
from tests.support.training import INPUT, LM, SIZES, STEPS, build_trainer, losses_of, save, started

CLASSIFY = ["--task", "sentence_classification", "--criterion", "sentence_classification"]
NO_LENGTH = [word for word in INPUT if word not in ("--max-positions", "32")]
HEAD = "sentence_classification_head"
TOLERANCE = {"rtol": 1e-4, "atol": 2e-5}


def build(*arguments):
    """The model of a fairseq-train command."""
    return build_trainer([*arguments, *STEPS, "--optimizer", "adam"])[1].get_model()


@pytest.mark.parametrize("arch", ["roberta", "roberta_large", "roberta_prenorm"])
def test_the_plugins_task_trains_the_packed_encoder_with_512_positions(data, arch):
    model = build(data, *CLASSIFY, "--arch", arch, *NO_LENGTH, *SIZES, "--precision", "fp32")
    assert isinstance(model, RobertaSmall)
    assert isinstance(model.encoder.sentence_encoder, PackedTransformerEncoder)
    assert model.max_positions() == 512
    assert len(model.encoder.sentence_encoder.embed_positions.weight) == 514
    stock = build(
        data, "--task", "sentence_prediction", "--criterion", "sentence_prediction", "--num-classes", "2",
        "--arch", arch, *NO_LENGTH, *SIZES,
    )  # fmt: skip
    assert type(stock) is RobertaModel
    model.load_state_dict(stock.state_dict())
    ids_BL = torch.randint(4, 44, (3, 9))
    ids_BL[1, 5:] = 1
    found_BK, wanted_BK = (
        one.eval()(ids_BL, features_only=True, classification_head_name=HEAD)[0] for one in (model, stock)
    )
    torch.testing.assert_close(found_BK, wanted_BK, **TOLERANCE)


@pytest.mark.parametrize(
    ("arch", "sizes"), [("roberta_base", (12, 768, 3072, 12)), ("roberta_large", (24, 1024, 4096, 16))]
)
def test_the_sizes_are_those_of_the_name(arch, sizes):
    words = ["data", *CLASSIFY, "--arch", arch]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    names = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
    assert tuple(getattr(args, f"encoder_{name}") for name in names) == sizes
    assert args.max_positions == 512


@pytest.mark.parametrize("flags", [[], ["--encoder", "packed"]], ids=["stock", "packed"])
def test_masked_lm_has_the_plugins_model_only_with_its_flags(data, flags):
    words = [data / "input0", *LM, "--criterion", "masked_lm", "--arch", "roberta_base", *SIZES, *flags]
    model = build(*words)
    assert isinstance(model, RobertaSmall) == bool(flags)
    assert model.max_positions() == 16


def test_masked_lm_has_the_positions_of_its_blocks_as_in_stock_fairseq(data):
    words = [data / "input0", "--task", "masked_lm", "--criterion", "masked_lm", "--arch", "roberta_base"]
    assert build(*words, *SIZES, "--tokens-per-sample", "24").max_positions() == 24


def test_a_stock_checkpoint_is_fine_tuned_with_its_flags(data, tmp_path):
    """The configuration of the saved checkpoint has the arch and the plugin's flags."""
    words = [data / "input0", *LM, "--criterion", "masked_lm", "--arch", "roberta_base", *SIZES, *STEPS]
    save(build_trainer([*words, "--optimizer", "adam"])[1], tmp_path / "stock.pt")
    train = [
        data, *CLASSIFY, "--arch", "roberta_base", *INPUT, *SIZES, *STEPS, "--optimizer", "fused_adam",
        "--max-positions", "16", "--save-dir", tmp_path / "run",
        "--finetune-from-model", tmp_path / "stock.pt",
    ]  # fmt: skip
    trainer = started(train)
    losses_of(trainer, 2)
    save(trainer, tmp_path / "run.pt")
    arguments = torch.load(tmp_path / "run.pt", weights_only=True)["cfg"]["model"]
    assert (arguments.arch, arguments.encoder_kind, arguments.layer_norm_eps) == (
        "roberta_base", "packed", 1e-5,
    )  # fmt: skip
