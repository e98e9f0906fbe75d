"""What --pretrained and --inits accept: fairseq checkpoints, Transformers folders, names on the hub."""

import json
import shutil
import threading
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.utils import filter_repo_objects

from roberta_small.common import files
from roberta_small.common.errors import UserError
from roberta_small.common.files import sha256
from roberta_small.eval.network import read_checkpoint
from roberta_small.experiments.inputs import checkpoints
from roberta_small.experiments.inputs.checkpoints import resolve, written
from roberta_small.export.transformers import to_fairseq
from tests.support import tiny_models

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def camembert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "camembert"
    tiny_models.write(folder, "camembert")
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Hugging Face's cache, without network: puts a folder there as a downloaded model."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def add(name, folder):
        repository = tmp_path / "hub" / f"models--{name.replace('/', '--')}"
        shutil.copytree(folder, repository / "snapshots" / ("0" * 40))
        (repository / "refs").mkdir()
        (repository / "refs/main").write_text("0" * 40)

    return add


@pytest.fixture
def conversions(monkeypatch):
    """The folders that are converted during a test."""
    done, convert = [], to_fairseq.convert_back

    def counted(folder, output, **options):
        done.append(folder)
        return convert(folder, output, **options)

    monkeypatch.setattr(to_fairseq, "convert_back", counted)
    return done


def test_a_transformers_folder_is_converted_once(camembert, cache, conversions):
    first = resolve(written(str(camembert)), "--pretrained")
    assert first.path.is_relative_to(cache)
    assert first.fingerprint() == {
        "path": str(first.path),
        "sha256": sha256(first.path),
        "source": str(camembert),
    }
    written_files = {path.name for path in first.path.parent.iterdir()}
    assert written_files == {"model.pt", "dict.txt", "tokenizer", "conversion.json"}
    assert f"converted from {camembert}" in first.note
    again = resolve(camembert / "model.safetensors", "--pretrained")  # the weights of the folder
    assert (again.path, again.digest) == (first.path, first.digest)
    assert "cache" in again.note
    assert len(conversions) == 1


def test_other_content_is_another_entry_of_the_cache(camembert, tmp_path, conversions):
    one = resolve(camembert, "--pretrained").path
    copy = shutil.copytree(camembert, tmp_path / "copy")
    assert resolve(copy, "--pretrained").path == one
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"hidden_dropout_prob": 0.3}))
    assert resolve(copy, "--pretrained").path != one
    assert len(conversions) == 2


@pytest.mark.parametrize("name", ["model.pt", "dict.txt", "conversion.json"])
def test_a_corrupt_entry_is_converted_again(camembert, conversions, name):
    found = resolve(camembert, "--pretrained")
    (found.path.parent / name).unlink()
    if name == "model.pt":
        found.path.write_bytes(b"corrupt")
    assert resolve(camembert, "--pretrained").digest == found.digest
    assert sha256(found.path) == found.digest
    assert len(conversions) == 2


def test_two_at_once_convert_it_once(camembert, conversions, monkeypatch):
    monkeypatch.setattr(files, "print", lambda *words, **options: waiting.set(), raising=False)
    waiting, found = threading.Event(), []
    convert = to_fairseq.convert_back

    def slow(*arguments, **options):
        waiting.clear()
        other.start()
        assert waiting.wait(20)  # the other one has announced that it waits
        return convert(*arguments, **options)

    monkeypatch.setattr(to_fairseq, "convert_back", slow)
    other = threading.Thread(target=lambda: found.append(resolve(camembert, "--inits")))
    found.append(resolve(camembert, "--pretrained"))
    other.join(20)
    assert found[0].digest == found[1].digest
    assert len(conversions) == 1


@pytest.mark.parametrize("name", ["tiny-camembert", "almanach/tiny-camembert"])
def test_a_hub_name_is_converted(camembert, hub, monkeypatch, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    hub(name, camembert)
    found = resolve(written(name), "--pretrained")
    assert found.fingerprint()["source"] == name
    assert found.digest == resolve(camembert, "--pretrained").digest


def test_a_hub_model_with_pickled_weights_is_converted(camembert, hub, monkeypatch, tmp_path):
    import torch
    from safetensors.torch import load_file

    source = shutil.copytree(camembert, tmp_path / "old")
    torch.save(load_file(source / "model.safetensors"), source / "pytorch_model.bin")
    (source / "model.safetensors").unlink()
    hub("old", source)
    monkeypatch.chdir(tmp_path / "cache" if (tmp_path / "cache").exists() else tmp_path.parent)
    assert resolve(Path("old"), "--pretrained").source == "old"


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("camembert-bse", ["camembert-bse: ", "Hugging Face", "--pretrained"]),
        ("pretrained/fr", ["pretrained/fr: ", "no such file or folder", "Hugging Face"]),
        ("pretrained/fr/model.pt", ["pretrained/fr/model.pt: ", "--pretrained"]),
        ("./camembert-base", ["camembert-base: ", "--pretrained"]),
        ("empty.pt", ["empty.pt: "]),
        ("folder", ["folder: ", "config.json", "--pretrained"]),
    ],
)
def test_what_does_not_exist_is_one_clear_error(hub, tmp_path, monkeypatch, name, facts):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.pt").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError) as error:
        resolve(written(name), "--pretrained")
    assert all(fact in str(error.value) for fact in facts), error.value


def test_the_pooling_of_a_hub_model_is_read(tmp_path, monkeypatch, conversions):
    """It is in a subfolder, of which the others, with other formats of the model, are not downloaded."""
    source, target = tmp_path / "source", tmp_path / "downloaded"
    tiny_models.write(source, "bert", "encoder")
    pooling = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    for name, content in {"1_Pooling/config.json": pooling, "onnx/config.json": {}}.items():
        (source / name).parent.mkdir()
        (source / name).write_text(json.dumps(content))

    def download(name, allow_patterns, ignore_patterns=None):
        names = [str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()]
        for chosen in filter_repo_objects(
            names, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns
        ):
            (target / chosen).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / chosen, target / chosen)
        return str(target)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    found = [read_checkpoint(resolve(Path("some/sentence-encoder"), "--pretrained").path)]
    assert not (target / "onnx").exists()
    (source / "1_Pooling/config.json").write_text(json.dumps({name: not x for name, x in pooling.items()}))
    found.append(read_checkpoint(resolve(Path("some/sentence-encoder"), "--pretrained").path))
    assert [one.arguments.pooling for one in found] == ["mean", "first"]
    assert len(conversions) == 2


@pytest.mark.parametrize("config", ['{"model_type": "bert", "hidden_act": "silu"}', "[]"])
def test_of_a_hub_model_that_cannot_be_represented_only_the_configuration_is_loaded(
    camembert, hub, monkeypatch, tmp_path, config
):
    loaded, snapshot = [], huggingface_hub.snapshot_download

    def counted(name, *, allow_patterns, **options):
        loaded.extend(allow_patterns)
        return snapshot(name, allow_patterns=allow_patterns, **options)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", counted)
    monkeypatch.chdir(tmp_path)
    source = shutil.copytree(camembert, tmp_path / "source")
    hub("user/fits", source)
    checkpoints.require_convertible(Path("user/fits"), "--pretrained")
    assert loaded[0] == "config.json"
    assert "*.safetensors" in loaded
    loaded.clear()
    (source / "config.json").write_text(config)
    hub("user/bert", source)
    with pytest.raises(UserError) as error:
        checkpoints.require_convertible(Path("user/bert"), "--pretrained")
    assert loaded == ["config.json"]
    assert str(error.value).startswith("user/bert")
    loaded.clear()
    with pytest.raises(UserError, match="Hugging Face hub"):
        checkpoints.require_convertible(Path("user/absent"), "--pretrained")


def test_a_folder_with_several_checkpoints_lists_them(tmp_path):
    folder = tmp_path / "several"
    folder.mkdir()
    (folder / "first.pt").write_bytes(b"weights")
    assert resolve(written(str(folder)), "--pretrained").path == folder / "first.pt"
    (folder / "second.pt").write_bytes(b"weights")
    with pytest.raises(UserError) as error:
        resolve(written(str(folder)), "--pretrained")
    assert all(fact in str(error.value) for fact in ("several", "2", "first.pt", "second.pt"))


def test_a_failed_conversion_leaves_nothing(camembert, cache, tmp_path):
    source = shutil.copytree(camembert, tmp_path / "source")
    (source / "model.safetensors").write_bytes(b"\x10" * 99)
    with pytest.raises(UserError, match="source: "):
        resolve(source, "--pretrained")
    assert [path for path in cache.iterdir() if path.suffix != ".lock"] == []


def test_fp16_weights_of_the_project_are_no_transformers_folder(tmp_path):
    header = json.dumps({"__metadata__": {"kind": "fairseq-roberta"}}).encode()
    content = len(header).to_bytes(8, "little") + header
    (tmp_path / "model.safetensors").write_bytes(content)
    (tmp_path / "config.json").write_text("{}")
    assert written(str(tmp_path)) == tmp_path / "model.safetensors"
    assert resolve(written(str(tmp_path)), "--pretrained").path == tmp_path / "model.safetensors"


def test_data_of_another_tokenizer_are_an_error(camembert, tmp_path):
    found = resolve(camembert, "--pretrained")
    (tmp_path / "data/input0").mkdir(parents=True)
    shutil.copy(found.path.parent / "dict.txt", tmp_path / "data/input0/dict.txt")
    checkpoints.require_dictionary(found, tmp_path / "data/input0/dict.txt")
    with open(tmp_path / "data/input0/dict.txt", "a", encoding="utf-8") as stream:
        stream.write("another 1\n")
    with pytest.raises(UserError, match=r"dict\.txt: .*--tokenizer") as error:
        checkpoints.require_dictionary(found, tmp_path / "data/input0/dict.txt")
    assert str(camembert) in str(error.value)
