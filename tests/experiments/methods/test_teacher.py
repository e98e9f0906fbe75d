"""Distillation: the teacher's vectors, the student's start, interruption, and the whole way."""

import json
import logging
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from transformers import AutoModel, AutoTokenizer

from roberta_small.common import manifest
from roberta_small.eval.model import open_model
from roberta_small.eval.network import read_checkpoint
from roberta_small.experiments.__main__ import main as experiments
from roberta_small.experiments.methods import teacher as teachers
from roberta_small.experiments.methods.pretrain import reading_note, tokens_per_update
from roberta_small.experiments.recipe.recipe import Recipe
from roberta_small.export.transformers.to_fairseq import convert_back
from roberta_small.fairseq_plugin.checkpoints.loading import load_checkpoint
from roberta_small.fairseq_plugin.models.causal import CausalRobertaSmall
from roberta_small.fairseq_plugin.tasks.distillation import RECORD, TeacherVectors
from roberta_small.preprocess.dictionary import load
from roberta_small.preprocess.indexed import text_blocks
from roberta_small.preprocess.tokenization.choice import MODEL
from roberta_small.preprocess.tokenization.encoder import load_model
from roberta_small.preprocess.tokenization.vocabulary import build_vocabulary
from tests.support import preloaded, tiny_models, tiny_tokenizers
from tests.support.binarized_files import running_text
from tests.support.tiny_runs import make_data, make_run
from tests.support.training import build_trainer, configuration, save

STUDENT = ["--encoder-layers", "1", "--encoder-embed-dim", "24", "--encoder-ffn-embed-dim", "16"]
STUDENT += ["--encoder-attention-heads", "2", "--tokens-per-sample", "24", "--max-positions", "24"]
STUDENT += ["--batch-size", "4", "--precision", "fp32", "--lr", "5e-3"]
EMBEDDINGS = "encoder.sentence_encoder.embed_tokens.weight"


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Text, XLM-R-like tokens of it, a dictionary of some of them, and a teacher."""
    root = tmp_path_factory.mktemp("distillation")
    lines = tiny_tokenizers.lines(240)
    documents = ["\n".join(lines[i : i + 6]) for i in range(0, 240, 6)]
    (root / "text.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    tiny_tokenizers.xlm_roberta(root / "tokenizer")
    model = str(root / "tokenizer" / MODEL)
    words = build_vocabulary(load_model(model), [str(root / "text.txt")], 40)
    (root / "dict.txt").write_text(words.text(), encoding="utf-8")
    running_text(
        model, root / "corpus", [str(root / "text.txt")], dictionary=str(root / "dict.txt"), valid_every=5
    )
    # A teacher whose subword tokens include those of the dictionary.
    tiny_models.write(root / "teacher", "xlm-roberta", "encoder")
    shutil.copytree(root / "tokenizer", root / "teacher", dirs_exist_ok=True)
    return root


@pytest.fixture(autouse=True)
def environment(text, monkeypatch, caplog):
    """A folder for converted encoders; the levels of loggers, which the command sets, are restored."""
    monkeypatch.setenv("RS_CACHE", str(text / "cache"))
    for logger in ("fairseq", "roberta_small"):
        caplog.set_level(logging.WARNING, logger)


def distilled(folder, text, *words, tokens="6k", student=STUDENT):
    """Train a student, by default of a teacher whose subword tokens include its own; returns the output."""
    if not (folder / "teacher").exists():
        shutil.copytree(text / "teacher", folder / "teacher")
    command = [preloaded.python(), "-m", "roberta_small.experiments", "pretrain", "--device", "cpu", *words]
    command += ["--data", text / "corpus", "--teacher", "teacher", "--out", "out", "--tokens", tokens]
    done = subprocess.run([*command, "--", *student], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout + done.stderr


def task_of(data, *words):
    """The task of a student of these tests."""
    fixed = ["--task", "distillation", "--criterion", "distillation", "--arch", "roberta_small"]
    words = [str(data), *fixed, "--tokens-per-sample", "24", *words]
    return teachers.DistillationTask.setup_task(configuration(words).task)


def opened(path, dictionary):
    return teachers.open_teacher(path, Path(dictionary), torch.device("cpu"), "fp32")


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """The folder of a teacher of Transformers, with fairseq's checkpoint of it: converted/model.pt."""
    folder = tmp_path_factory.mktemp("bert")
    tiny_models.write(folder / "teacher", "bert", "encoder")
    convert_back(folder / "teacher", folder / "converted/model.pt")
    return folder


def write_start(path, text):
    """A student of other random weights, as another pre-training leaves it."""
    task = ["--task", "masked_lm", "--criterion", "masked_lm", "--arch", "roberta_small", "--cpu"]
    _, trainer = build_trainer([text / "corpus", *task, *STUDENT, "--optimizer", "adam", "--seed", "3"])
    path.parent.mkdir(exist_ok=True)
    save(trainer, path)
    return path


@pytest.mark.long
def test_a_student_learns_the_hidden_states_of_a_teacher_with_its_tokens(tmp_path, text):
    model = AutoModel.from_pretrained(text / "teacher").eval()
    output = distilled(tmp_path, text, tokens="60k")
    assert "a vector for every token" in output
    recorded = manifest.read(tmp_path / "out")
    assert recorded["teacher"]["source"] == "teacher"
    assert 0 < recorded["teacher_seconds"] < 60
    log = (tmp_path / "out/train.log").read_text(encoding="utf-8")
    errors = [float(error) for error in re.findall(r'"valid_token_error": "([^"]+)"', log)]
    assert errors[-1] < 0.8 * errors[0]

    vectors = TeacherVectors(tmp_path / "out/teacher", "valid")
    symbols = load(str(text / "corpus/dict.txt")).symbols
    own = AutoTokenizer.from_pretrained(tmp_path / "teacher")
    texts = task_of(text / "corpus").texts("valid", str(text / "corpus"))
    assert len(texts) == len(vectors)
    for index in range(5):
        row = texts[index].tolist()
        assert row[0] == 0
        ids = torch.tensor([[own.get_vocab().get(symbols[i], 3) for i in row]])
        with torch.no_grad():
            wanted_LD = model(input_ids=ids)[0][0].numpy()
        np.testing.assert_allclose(vectors[index], wanted_LD, atol=2e-3)

    start = load_checkpoint(tmp_path / "out/student.pt")["model"][EMBEDDINGS]
    theirs = model.state_dict()["embeddings.word_embeddings.weight"]
    one, other = start[4 : len(symbols)], theirs[[own.get_vocab()[name] for name in symbols[4:]]]
    ratio = (one @ one.T) / (other @ other.T)  # rotated and scaled: angles are kept
    torch.testing.assert_close(ratio, ratio[0, 0].expand_as(ratio), rtol=1e-3, atol=0)
    assert read_checkpoint(tmp_path / "out/model.pt").vocabulary == 40
    for file in ("model.pt", "checkpoint_best.pt"):  # the LM head is random, and no command uses it
        assert not [name for name in read_checkpoint(tmp_path / "out" / file).weights if "lm_head" in name]
    again = opened(tmp_path / "out/model.pt", text / "corpus/dict.txt")
    assert again.ids is not None
    again.encoder(torch.tensor([[0, 5, 6, 2]]), features_only=True)
    assert (tmp_path / "out/dict.txt").is_file()


@pytest.mark.parametrize("family", ["xlm-roberta", "camembert"])
def test_texts_begin_and_end_as_those_of_the_teacher(tmp_path, text, family):
    """CamemBERT's `<s>` and `</s>` are the tokens 5 and 6."""
    tiny_models.write(tmp_path / "teacher", family, "encoder")
    convert_back(tmp_path / "teacher", tmp_path / "converted/model.pt")
    teacher = opened(tmp_path / "converted/model.pt", text / "corpus/dict.txt")
    (row,) = teacher.read([np.array([0, 7, 2])])
    wanted = AutoTokenizer.from_pretrained(tmp_path / "teacher")("")["input_ids"]
    assert row[[0, 2]].tolist() == wanted
    assert wanted == {"xlm-roberta": [0, 2], "camembert": [5, 6]}[family]


def test_text_that_cannot_be_restored_is_an_error(tmp_path, bert):
    (tmp_path / "dict.txt").write_text("xyzzy 3\nplugh 2\n")
    with pytest.raises(teachers.UserError, match=r"dict\.txt: .*SentencePiece"):
        opened(bert / "converted/model.pt", tmp_path / "dict.txt")


@pytest.mark.parametrize(("sizes", "used"), [([3, 2, 4], 5), ([9, 2], 9)])
def test_vectors_are_standardized_by_the_first_of_them(tmp_path, monkeypatch, sizes, used):
    """By those of many shards if each text has one, or by a whole first shard."""
    monkeypatch.setattr(teachers, "SHARD_TOKENS", 6)
    vectors_ND = np.random.default_rng(1).normal(size=(sum(sizes), 2)).astype(np.float16)
    shards = []
    for number, part in enumerate(np.split(vectors_ND, np.cumsum(sizes)[:-1])):
        (tmp_path / f"{number}.f16").write_bytes(part.tobytes())
        shards.append({"file": f"{number}.f16", "vectors": len(part)})
    found = teachers._moments(tmp_path, shards)
    assert found["mean"] == pytest.approx(vectors_ND[:used].astype(np.float32).mean(0), rel=1e-5)
    assert found["std"] == pytest.approx(vectors_ND[:used].astype(np.float32).std(0), rel=1e-5)


@pytest.mark.parametrize("arch", ["causal_roberta_small", "causal_lm_small"])
def test_a_left_to_right_teacher(tmp_path, text, arch):
    """It has no `<mask>`, which is the last token of the student."""
    words = ["--task", "distillation", "--criterion", "cross_entropy", "--arch", arch, "--cpu", *STUDENT]
    cfg = configuration([text / "corpus", *words])
    model = teachers.DistillationTask.setup_task(cfg.task).build_model(cfg.model)
    torch.save(
        {"cfg": OmegaConf.to_container(cfg, enum_to_str=True), "model": model.state_dict()},
        tmp_path / "model.pt",
    )
    dictionary = shutil.copy(text / "corpus/dict.txt", tmp_path)
    teacher = opened(tmp_path / "model.pt", dictionary)
    assert teacher.ids.tolist() == [*range(39), 3]
    row = np.array([0, 5, 7, 2])
    (found_LD,) = teacher.hidden(teacher.read([row]))
    with torch.no_grad():
        wanted_1LD = model.eval()(torch.from_numpy(row)[None], features_only=True)[0]
    np.testing.assert_allclose(found_LD, wanted_1LD[0].numpy(), atol=1e-5)


def test_a_teacher_with_token_types_reads_one_text(bert):
    """In running text, every sentence ends in `</s>`; none of them is the second text of a pair."""
    model = AutoModel.from_pretrained(bert / "teacher").eval()
    dictionary = bert / "converted/dict.txt"
    teacher = opened(bert / "converted/model.pt", dictionary)
    assert teacher.ids is not None
    names = load(str(dictionary)).symbols
    own = AutoTokenizer.from_pretrained(bert / "teacher")
    theirs = own("un livre", "un roman")["input_ids"]
    ends = {own.cls_token_id: 0, own.sep_token_id: 2}
    row = np.array(
        [ends.get(i, names.index(own.convert_ids_to_tokens(i)) if i not in ends else 0) for i in theirs]
    )
    (found_LD,) = teacher.hidden(teacher.read([row]))
    with torch.no_grad():
        wanted_1LD = model(input_ids=torch.tensor([theirs]))[0]
    np.testing.assert_allclose(found_LD, wanted_1LD[0].numpy(), atol=2e-5)


def test_texts_that_are_too_long_for_the_teacher_are_reported_once(bert, text, capfd):
    teacher = opened(bert / "converted/model.pt", text / "corpus/dict.txt")
    short, long = np.array([0, 7, 2]), np.array([0, *[7, 8, 9] * 40, 2])
    teacher.read([short])
    assert "warning" not in capfd.readouterr().err
    rows = [teacher.read([short, long, long])[1] for _ in range(2)]
    assert [len(row) for row in rows] == [34, 34]
    printed = capfd.readouterr().err
    assert printed.count("reads 34 tokens; 2 of 3 texts have more") == 1


@pytest.mark.parametrize(
    ("options", "flags", "fact"),
    [
        (["--recipe", "distill"], [], "--teacher"),
        (["--start", "teacher", "--dry-run"], [], "--dict"),
        (["--teacher", "teacher"], ["--encoder-attention-heads", "7"], "--encoder-attention-heads 7"),
        (["--teacher", "teacher"], ["--tokens-per-sample", "512"], "--max-positions 24"),
        (["--teacher", "teacher"], ["--text-weight", "-1"], "--text-weight -1"),
    ],
)
def test_mistakes_are_errors_before_the_teacher_reads(
    tmp_path, monkeypatch, text, capfd, options, flags, fact
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(text / "teacher", "teacher")
    words = ["--data", str(text / "corpus"), "--out", "out", "--tokens", "6k", "--device", "cpu", *options]
    assert experiments(["pretrain", *words, "--", *STUDENT, *flags]) == 1
    printed = "".join(capfd.readouterr())
    assert fact in printed
    assert "Traceback" not in printed
    assert not (tmp_path / "out/teacher").exists()


@pytest.mark.parametrize(("tokens", "part"), [(10**9, False), (100, True), (None, False)])
def test_the_plan_has_what_the_teacher_reads_and_the_tokens_of_an_update(text, tokens, part):
    """Documents are shorter than --tokens-per-sample, so an update has fewer tokens than a full batch."""
    recipe = Recipe("r", ("--task", "distillation", "--batch-size", "4", "--tokens-per-sample", "24"))
    (note,) = reading_note(recipe, tokens, text / "corpus")
    sizes = task_of(text / "corpus").texts("train", str(text / "corpus")).sizes
    assert f"{sizes.sum():,} tokens" in note
    assert ("smaller text" in note) == part
    assert 4 < sizes.mean() < 24
    assert tokens_per_update(recipe, text / "corpus") == round(4 * sizes.mean())
    assert tokens_per_update(recipe) == 4 * 24


@pytest.mark.long
def test_a_teacher_with_other_tokens_has_a_vector_for_each_text(tmp_path, text):
    model = tiny_models.write(tmp_path / "teacher", "bert", "encoder")
    assert "a vector for every text" in distilled(tmp_path, text)
    vectors = TeacherVectors(tmp_path / "out/teacher", "train")
    assert vectors.of == "texts"
    assert vectors.width == model.config.hidden_size
    # The first text is the first document, as the tokenizer of the teacher reads it.
    lines = (text / "text.txt").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    own = AutoTokenizer.from_pretrained(tmp_path / "teacher")
    sizes = np.load(tmp_path / "out/teacher/train-00000.sizes.npy")
    assert (sizes == 1).all()
    differences = []
    for count in range(1, len(lines) + 1):
        inputs = own(" ".join(lines[:count]), truncation=True, max_length=32, return_tensors="pt")
        with torch.no_grad():
            wanted_D = model(**inputs)[0][0].mean(0).numpy()
        differences.append(np.abs(vectors[0][0].numpy() - wanted_D).max())
    assert min(differences) < 2e-3


@pytest.mark.long
def test_a_left_to_right_student(tmp_path, text):
    distilled(tmp_path, text, student=[*STUDENT, "--arch", "causal_lm_small"])
    found = read_checkpoint(tmp_path / "out/model.pt")
    assert issubclass(found.model_class(), CausalRobertaSmall)
    assert found.vocabulary == 39  # without <mask>


@pytest.mark.long
def test_a_student_starts_from_a_checkpoint(tmp_path, text):
    """With --start, the student has its weights instead of the teacher's embeddings."""
    write_start(tmp_path / "first/start.pt", text)  # the only checkpoint of the folder
    no_change = [*STUDENT, "--lr", "1e-30"]
    output = distilled(tmp_path, text, "--start", "first", tokens="1k", student=no_change)
    assert "a vector for every token" in output
    assert not (tmp_path / "out/student.pt").exists()
    recorded = manifest.read(tmp_path / "out")
    assert (recorded["init"], recorded["checkpoint"]["path"]) == ("start", "first/start.pt")
    wanted, found = (
        load_checkpoint(path)["model"] for path in (tmp_path / "first/start.pt", tmp_path / "out/model.pt")
    )
    assert EMBEDDINGS in found
    for name in (name for name in found if name.startswith("encoder.sentence_encoder.")):
        torch.testing.assert_close(found[name], wanted[name], atol=1e-6, rtol=0)


@pytest.mark.parametrize("beside", [True, False])
def test_a_start_with_another_vocabulary_is_an_error_before_the_teacher_reads(tmp_path, text, beside, capfd):
    state = torch.load(write_start(tmp_path / "start.pt", text), weights_only=False)
    lines = (text / "corpus/dict.txt").read_text("utf-8").splitlines()
    if beside:
        (tmp_path / "dict.txt").write_text("\n".join(lines[::-1]) + "\n", encoding="utf-8")
    else:
        state["model"] = {name: w[:-1] if len(w) > len(lines) else w for name, w in state["model"].items()}
    torch.save(state, tmp_path / "start.pt")
    words = ["pretrain", "--data", text / "corpus", "--teacher", text / "teacher", "--tokens", "6k"]
    words += ["--out", tmp_path / "out", "--start", tmp_path / "start.pt", "--device", "cpu", "--", *STUDENT]
    assert experiments([str(word) for word in words]) == 1
    printed = capfd.readouterr()
    assert "start.pt" in printed.out + printed.err
    assert "dict" in printed.out + printed.err
    assert not (tmp_path / "out/teacher").exists()


def test_a_run_is_a_teacher_with_the_dictionary_and_tokenizer_of_its_data(tmp_path, text):
    data = make_data(tmp_path / "own")
    make_run(data, tmp_path / "run")
    dictionary = text / "corpus/dict.txt"
    path = tmp_path / "run/checkpoint_best.pt"
    teacher = opened(path, dictionary)
    assert teacher.ids is None
    symbols = ["<s>", "<pad>", "</s>", "<unk>", *load(str(dictionary)).names()]
    row = np.array([0, *(symbols.index(token) for token in ("▁livre", "▁roman") if token in symbols)])
    words = "".join(symbols[i] for i in row[1:]).replace("▁", " ").strip()
    assert words
    wanted = open_model(path).text_input.encode([words]).rows
    assert [ids.tolist() for ids in teacher.read([row])] == [ids.tolist() for ids in wanted]
    assert opened(path, tmp_path / "own/dict.txt").ids is not None

    (tmp_path / "alone").mkdir()
    path = shutil.copy(path, tmp_path / "alone/model.pt")
    shutil.rmtree(tmp_path / "own")
    with pytest.raises(teachers.UserError, match=r"model\.pt: as a teacher, it needs its dictionary"):
        opened(path, dictionary)


@pytest.mark.long
def test_shards_are_read_one_for_each_epoch(tmp_path, text):
    """Every shard has vectors of its own, and a student trains on all of them."""
    shutil.copytree(text / "teacher", tmp_path / "teacher")
    model, texts = str(text / "tokenizer" / MODEL), [str(text / "text.txt")]
    dictionary = str(text / "dict.txt")
    running_text(model, tmp_path / "corpus", texts, dictionary=dictionary, valid_every=5, shards=2)
    output = distilled(tmp_path, tmp_path, tokens="8k")
    assert "a vector for every token" in output
    record = json.loads((tmp_path / "out/teacher" / RECORD).read_text(encoding="utf-8"))
    assert list(record["shards"]) == ["train-shard0", "train-shard1", "valid"]
    folders = os.pathsep.join(str(tmp_path / f"corpus/shard{number}") for number in range(2))
    task = task_of(folders, "--teacher-vectors", str(tmp_path / "out/teacher"))
    lengths = [len(task.load_dataset("train", epoch=epoch)) for epoch in (1, 2, 3)]
    counts = [sum(part["texts"] for part in record["shards"][f"train-shard{n}"]) for n in range(2)]
    assert lengths == [*counts, counts[0]]


@pytest.fixture
def interrupted(monkeypatch):
    """Interrupts the writing of the second of the small shards; contains the names of those that begin."""
    names, original = [], teachers._write_shard

    def write_shard(*args):
        names.append(args[3].name)
        if len(names) == 2:
            raise KeyboardInterrupt
        return original(*args)

    monkeypatch.setattr(teachers, "SHARD_TOKENS", 200)
    monkeypatch.setattr(teachers, "_write_shard", write_shard)
    return names


@pytest.fixture
def vectors(tmp_path, text, interrupted):
    """The folder of vectors whose reading was interrupted and resumed."""
    convert_back(text / "teacher", tmp_path / "converted/model.pt")
    task = task_of(text / "corpus")
    teacher = opened(tmp_path / "converted/model.pt", text / "corpus/dict.txt")

    def write(name):
        record = teachers.read_record(tmp_path / name, {"of": "this"})
        teachers.write_vectors(teacher, task, tmp_path / name, ["train", "valid"], record)

    with pytest.raises(KeyboardInterrupt):
        write("parts")
    assert not (tmp_path / "parts" / RECORD).is_file()
    write("parts")
    assert interrupted[:3] == ["train-00000.f16", "train-00001.f16", "train-00001.f16"]
    write("whole")
    return tmp_path / "parts"


def test_vectors_are_resumed_after_an_interruption(vectors):
    """Complete shards are kept, and the result is that of an uninterrupted reading."""
    for split in ("train", "valid"):
        one, other = (TeacherVectors(vectors.parent / name, split) for name in ("whole", "parts"))
        assert len(one) == len(other) > 1
        assert all(torch.equal(one[i], other[i]) for i in range(len(one)))
        assert torch.equal(one.collater([one[1], one[0]]), torch.cat([one[1], one[0]]))
    with pytest.raises(teachers.UserError, match="another teacher or other text"):
        teachers.read_record(vectors, {"of": "other"})


def test_vectors_that_are_damaged_or_missing_are_errors(vectors):
    for name in ("train-00001.sizes.npy", "train-00000.f16"):
        path = vectors / name
        path.write_bytes(b"other")
        with pytest.raises(teachers.UserError, match=f"{name}: changed since the teacher wrote it"):
            teachers.read_record(vectors, {"of": "this"})
        path.unlink()
        with pytest.raises(teachers.UserError, match=f"{name}: no such file; delete"):
            teachers.read_record(vectors, {"of": "this"})
    (vectors / "train-00000.f16").write_bytes(b"")
    with pytest.raises(teachers.UserError, match=r"train-00000\.f16: missing or truncated"):
        TeacherVectors(vectors, "train")


@pytest.mark.long
def test_the_command_goes_on_after_an_interruption_of_the_teacher(tmp_path, monkeypatch, text, interrupted):
    monkeypatch.chdir(tmp_path)
    words = ["pretrain", "--data", str(text / "corpus"), "--teacher", str(text / "teacher"), "--out", "out"]
    words += ["--tokens", "2k", "--device", "cpu", "--", *STUDENT]
    assert experiments(words) == 130
    assert manifest.read(tmp_path / "out")["status"] == "interrupted"
    (tmp_path / "out/student.pt").write_bytes(b"of an earlier start, with another teacher")
    assert experiments(words) == 0
    assert interrupted[:3] == ["train-00000.f16", "train-00001.f16", "train-00001.f16"]
    assert manifest.read(tmp_path / "out")["status"] == "finished"


@pytest.mark.long
def test_a_resumed_student_is_that_of_an_uninterrupted_run(tmp_path, text):
    """The projection to the teacher's width, which is not part of the model, is resumed with it."""
    student = [*STUDENT, "--save-interval-updates", "10", "--keep-interval-updates", "-1"]
    distilled(tmp_path, text, tokens="2k", student=student)
    run = tmp_path / "out"
    wanted = load_checkpoint(run / "checkpoint_last.pt")
    early = min(run.glob("checkpoint_*_10.pt"))
    shutil.copy(early, run / "checkpoint_last.pt")
    manifest.write(run, manifest.read(run) | {"status": "interrupted"})
    distilled(tmp_path, text, tokens="2k", student=student)
    found = load_checkpoint(run / "checkpoint_last.pt")
    assert found["optimizer_history"][-1]["num_updates"] > 10
    for part in ("model", "criterion"):
        assert found[part].keys() == wanted[part].keys()
        for name, weight in wanted[part].items():
            torch.testing.assert_close(found[part][name], weight, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ([3, 4, 1, 5, 5], [(0, 7), (8, 13), (13, 18)]),
        ([25, 2], [(0, 9), (9, 18), (18, 27)]),
        ([1, 1, 2, 1], [(2, 4)]),
        ([9, 9], [(0, 9), (9, 18)]),
        ([], []),
    ],
)
def test_texts_are_sentences_of_a_document(sizes, wanted):
    assert list(text_blocks(sizes, 9)) == wanted
