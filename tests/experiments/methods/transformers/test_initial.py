"""Initial weights of the method transformers against those of fairseq-train."""

import pytest
import torch

from roberta_small.common.errors import UserError
from roberta_small.common.families import FAMILIES
from roberta_small.experiments.methods.transformers.train_run import initial_model
from roberta_small.export.transformers.networks import to_transformers
from tests.support.data_folders import write_data
from tests.support.method_runs import parsed, words
from tests.support.training import INPUT, OURS, SIZES, SLOW, STEPS, build_trainer, save, started

HEAD = "sentence_classification_head"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Data, and a checkpoint with a randomly initialized encoder and no head."""
    root = tmp_path_factory.mktemp("initial")
    data = write_data(root / "data")
    _, trainer = build_trainer([data, *OURS, *INPUT, *STEPS, *SIZES, *SLOW])
    save(trainer, root / "pre.pt")
    state = torch.load(root / "pre.pt", weights_only=False)
    state["model"] = {key: x for key, x in state["model"].items() if "classification_heads" not in key}
    torch.save(state, root / "pre.pt")
    return root


def fairseqs(trained, run, seed, *restore):
    """The initial weights of fairseq-train."""
    flags = ["--seed", seed, "--save-dir", run, "--cpu", "--num-classes", "2", *restore]
    weights = started([trained / "data", *words(), *flags]).get_model().state_dict()
    return to_transformers(weights, FAMILIES["roberta"], head=HEAD, lm_head=False)


def ours(data, checkpoint, seed=1, changes=()):
    cfg, task = parsed(data, {"--num-classes": "2"} | dict(changes))
    torch.rand(3)  # the state of the generator must not matter
    return initial_model(cfg, task, checkpoint, seed).state_dict()


@pytest.mark.parametrize("kind", ["random", "pretrained"])
def test_the_weights_are_those_of_fairseq_train(trained, tmp_path, kind):
    checkpoint = trained / "pre.pt" if kind == "pretrained" else None
    resets = ["--reset-optimizer", "--reset-dataloader", "--reset-meters"]
    restore = ["--restore-file", checkpoint, *resets] if checkpoint else []
    wanted = fairseqs(trained, tmp_path / "run", 7, *restore)
    found = ours(trained / "data", checkpoint, 7)
    assert set(found) == set(wanted)
    for key, weight in wanted.items():
        torch.testing.assert_close(found[key], weight, atol=1e-20, rtol=0)
    assert not found["roberta.embeddings.token_type_embeddings.weight"].any()
    dense = "classifier.dense.weight"
    assert found[dense].std() > 0.01
    assert not torch.equal(found[dense], ours(trained / "data", checkpoint, 8)[dense])


def test_of_more_positions_the_first_are_used(trained):
    weights = ours(trained / "data", trained / "pre.pt", changes={"--max-positions": "20"})
    stored = torch.load(trained / "pre.pt", weights_only=False)["model"]
    positions = "encoder.sentence_encoder.embed_positions.weight"
    assert torch.equal(weights["roberta.embeddings.position_embeddings.weight"], stored[positions][:22])


def test_a_checkpoint_with_other_heads_or_another_vocabulary_is_an_error(trained, tmp_path):
    with pytest.raises(UserError, match=r"pre\.pt.*--encoder-attention-heads 2"):
        ours(trained / "data", trained / "pre.pt", changes={"--encoder-attention-heads": "4"})
    data = write_data(tmp_path / "data")
    with (data / "input0/dict.txt").open("a") as stream:
        stream.write("another 1\n")
    with pytest.raises(UserError, match=r"pre\.pt.*<mask>"):
        ours(data, trained / "pre.pt")


def test_the_head_of_a_classifier_has_the_classes_of_the_data(tmp_path):
    data = write_data(tmp_path / "data", classes=("a", "b"))
    _, trainer = build_trainer([data, *OURS, *INPUT, *STEPS, *SIZES, *SLOW])
    save(trainer, tmp_path / "model.pt")
    state = torch.load(tmp_path / "model.pt", weights_only=False)
    weight = state["model"][f"classification_heads.{HEAD}.out_proj.weight"]
    random = ours(data, None)["classifier.out_proj.weight"]
    for recorded, wanted in ((["B", "A"], weight.flip(0)), (["c", "d"], random)):
        state["extra_state"]["SentenceClassificationTask"]["class_names"] = recorded
        torch.save(state, tmp_path / "model.pt")
        assert torch.equal(ours(data, tmp_path / "model.pt")["classifier.out_proj.weight"], wanted)
