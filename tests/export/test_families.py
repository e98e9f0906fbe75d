"""RoBERTa, CamemBERT and XLM-RoBERTa of Transformers as fairseq checkpoints, against stock fairseq."""

import json
import pickle
import shutil

import pytest
import torch
from transformers import AutoTokenizer, XLMRobertaXLConfig, XLMRobertaXLForMaskedLM

from roberta_small.common.errors import UserError
from roberta_small.common.files import sha256
from roberta_small.export.transformers.to_fairseq import convert_back
from roberta_small.fairseq_plugin.checkpoints.architecture import read_architecture
from roberta_small.fairseq_plugin.checkpoints.loading import load_checkpoint
from roberta_small.preprocess.tokenization.choice import locate
from roberta_small.preprocess.tokenization.transformers_encoder import TransformersEncoder
from tests.support import tiny_models
from tests.support.archives import Executes
from tests.support.exported_runs import HEAD, PAD, dictionary_of, padded_ids, stock_model

TEXTS = ["le livre n'est pas bon", "", "  été   très captivant ! 漢字 🙂", "l'auteur </s> <mask>"]


NAMES = {"id2label": {0: "bad", 1: "so so", 2: "good"}, "label2id": {"bad": 0, "so so": 1, "good": 2}}
OF_CLASSIFIERS = {"bos_token_id": 0, "eos_token_id": 2, **NAMES}
"""Configurations on the hub often keep the default ids."""


@pytest.fixture(params=tiny_models.PREFIXES)
def family(request):
    return request.param


@pytest.fixture(scope="module")
def camembert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "camembert"
    tiny_models.write(folder, "camembert")
    return folder


@pytest.mark.parametrize("kind", tiny_models.KINDS)
def test_stock_fairseq_computes_the_same(tmp_path, family, kind):
    source, new = tmp_path / "source", tmp_path / "new"
    model = tiny_models.write(source, family, kind, **(OF_CLASSIFIERS if kind == "classifier" else {}))
    found = convert_back(source, new / "model.pt")
    assert found.difference < 1e-4
    dictionary = dictionary_of(new / "dict.txt")
    ours = stock_model(new / "model.pt", dictionary)
    ids_BL = padded_ids(len(dictionary))
    mask_BL = ids_BL != PAD
    with torch.no_grad():
        theirs = model(input_ids=ids_BL, attention_mask=mask_BL.long())
        if kind == "classifier":
            wanted, (result, _) = theirs.logits, ours(ids_BL, classification_head_name=HEAD)
        else:
            wanted = theirs[0][mask_BL]
            result = ours(ids_BL, features_only=kind == "encoder")[0][mask_BL]
    assert wanted.std() > 0.01
    torch.testing.assert_close(result, wanted, atol=1e-5, rtol=1e-4)
    assert bool(found.random) == (kind != "masked-lm")  # fairseq always has an LM head
    assert any("pooler" in name for name in found.unused) == (kind == "encoder")
    assert_same_ids(source, new)
    if kind == "classifier":  # its classes, and the special tokens of its tokenizer
        state = load_checkpoint(new / "model.pt")
        task = state["cfg"]["task"]
        expected = (5, 6) if family == "camembert" else (0, 2)
        assert (task["init_token"], task["separator_token"]) == expected
        assert state["extra_state"]["SentenceClassificationTask"]["class_names"] == ["bad", "so so", "good"]


def assert_same_ids(source, new):
    """Dictionary and tokenizer keep their ids."""
    reference = AutoTokenizer.from_pretrained(source)
    assert locate(str(new)).transformers == str(new / "tokenizer")
    again = AutoTokenizer.from_pretrained(new / "tokenizer")
    assert [again(text)["input_ids"] for text in TEXTS] == [reference(text)["input_ids"] for text in TEXTS]
    symbols = dictionary_of(new / "dict.txt").symbols
    assert len(symbols) == len(reference)
    assert all(symbols[index] == token for token, index in reference.get_vocab().items() if index > 3)


def weights_of(path):
    return load_checkpoint(path)["model"]


@pytest.mark.parametrize("form", ["sharded safetensors", "sharded pickle"])
def test_other_forms_of_the_weights_give_the_same_checkpoint(tmp_path, camembert, form):
    wanted = weights_of(converted(camembert, tmp_path / "wanted"))
    source = shutil.copytree(camembert, tmp_path / "source")
    if form == "sharded safetensors":
        model = tiny_models.write(tmp_path / "again", "camembert")
        (source / "model.safetensors").unlink()
        model.save_pretrained(source, max_shard_size="4KB")
        assert len(list(source.glob("model-*.safetensors"))) > 1
    else:
        to_pickle(source, shards=2)
    found = weights_of(converted(source, tmp_path / "new"))
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[key], wanted[key]) for key in wanted)


def converted(source, folder):
    convert_back(source, folder / "model.pt")
    return folder / "model.pt"


def to_pickle(folder, shards=1):
    """Replace the safetensors by pickled weights, as older versions of Transformers wrote them."""
    from safetensors.torch import load_file

    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    if shards == 1:
        torch.save(weights, folder / "pytorch_model.bin")
        return
    index = {}
    for number in range(shards):
        name = f"pytorch_model-{number + 1:05}-of-{shards:05}.bin"
        part = {key: weights[key] for i, key in enumerate(sorted(weights)) if i % shards == number}
        torch.save(part, folder / name)
        index |= dict.fromkeys(part, name)
    content = {"metadata": {"total_size": 1}, "weight_map": index}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(content))


def test_the_same_folder_always_gives_the_same_file(tmp_path):
    """Also the weights that the folder lacks, which are random: a run resumes only from the same file."""
    tiny_models.write(tmp_path / "source", "roberta", "encoder")
    paths = [converted(tmp_path / "source", tmp_path / name) for name in ("one", "other")]
    torch.rand(3)
    assert sha256(paths[0]) == sha256(paths[1])
    weights = weights_of(paths[0])  # tied embeddings are stored once
    tied = [weights["encoder.lm_head.weight"], weights["encoder.sentence_encoder.embed_tokens.weight"]]
    assert tied[0].data_ptr() == tied[1].data_ptr()


def unpickled(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": Executes(folder / "executed")}, 2))


def zipped(folder):
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Executes(folder / "executed")}, folder / "pytorch_model.bin")


def flipped(folder):
    """A flipped bit in a weight, which torch itself would not notice."""
    to_pickle(folder)
    content = bytearray((folder / "pytorch_model.bin").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "pytorch_model.bin").write_bytes(content)


def changed(**changes):
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def without_tokenizer(folder):
    for path in folder.glob("*token*"):
        path.unlink()
    (folder / "sentencepiece.bpe.model").unlink(missing_ok=True)


def another_tokenizer(folder):
    without_tokenizer(folder)
    other = folder.parent / "other"
    tiny_models.tiny_tokenizers.roberta(other)
    for path in other.iterdir():
        shutil.copy(path, folder)


def xlm_roberta_xl(folder):
    (folder / "model.safetensors").unlink()
    sizes = tiny_models.SIZES | {"vocab_size": 51}
    XLMRobertaXLForMaskedLM(XLMRobertaXLConfig(**sizes)).save_pretrained(folder)


@pytest.mark.parametrize(
    ("corrupt", "fact"),
    [
        (xlm_roberta_xl, "'xlm-roberta-xl'"),
        (changed(architectures="CamembertForMaskedLM"), "config.json: "),
        (changed(pad_token_id=0), "pad_token_id"),
        (changed(num_hidden_layers=3), "layer.2"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no weights"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\x10" * 99), "cannot be loaded"),
        (unpickled, "execute"),
        (zipped, "execute"),
        (flipped, "cannot be loaded"),
        (without_tokenizer, "dict.txt: "),
        (another_tokenizer, "entries"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_what_cannot_be_converted_is_an_error(tmp_path, camembert, corrupt, fact):
    source = shutil.copytree(camembert, tmp_path / "source")
    corrupt(source)
    with pytest.raises(UserError, match=fact) as error:
        convert_back(source, tmp_path / "new/model.pt")
    assert str(source) in str(error.value)
    assert not (tmp_path / "new").exists()
    assert not (source / "executed").exists()


def test_the_first_token_type_and_another_epsilon_are_those_of_the_checkpoint(tmp_path):
    tiny_models.write(tmp_path / "source", "roberta", type_vocab_size=2, layer_norm_eps=1e-3)
    assert convert_back(tmp_path / "source", tmp_path / "new/model.pt").difference < 1e-5
    assert read_architecture(tmp_path / "new/model.pt").flags()["--layer-norm-eps"][-1] == "0.001"


def test_a_tokenizer_of_another_model_is_never_replaced(tmp_path, camembert):
    TransformersEncoder(str(tiny_models.tiny_tokenizers.roberta(tmp_path / "new/tokenizer")))
    before = sorted(sha256(path) for path in (tmp_path / "new/tokenizer").iterdir())
    with pytest.raises(UserError, match="tokenizer: "):
        convert_back(camembert, tmp_path / "new/model.pt")
    assert sorted(sha256(path) for path in (tmp_path / "new/tokenizer").iterdir()) == before
    assert not (tmp_path / "new/model.pt").exists()
