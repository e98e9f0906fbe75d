"""Generation against decoding without a cache, and sampling against Transformers."""

import json
import shlex
import shutil

import pytest
import torch
from transformers.generation.logits_process import TopKLogitsWarper, TopPLogitsWarper

from roberta_small.common import manifest
from roberta_small.common.errors import UserError
from roberta_small.common.files import sha256
from roberta_small.eval.__main__ import main
from roberta_small.eval.language_model import LanguageModel, Sampling, completion_of, sample
from roberta_small.fairseq_plugin.checkpoints import fp16
from roberta_small.preprocess.binarize import Split
from tests.support.binarized_files import binarize
from tests.support.tiny_runs import make_data, write_manifest
from tests.support.training import STEPS, build_trainer, losses_of, save

PROMPTS = ["un livre", "", "très long très court c'est", "la", "漢字 Ω"]
FLAGS = shlex.split(
    "--task language_modeling --criterion fast_lm --tokens-per-sample 24 --max-positions 24 --precision fp32 "
    "--optimizer fused_adam --encoder-layers 2 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 "
    "--encoder-attention-heads 2"
)
BOS, PAD, EOS, UNK = 0, 1, 2, 3


def make_language_model(root, arch, updates):
    """A folder with a checkpoint, dict.txt and the training data."""
    make_data(root)
    text = str(root / "train.input0")
    binarize(
        [Split(name, {".": [text]}, None) for name in ("train", "valid")],
        root / "text",
        sentencepiece_model=str(root / "spm.model"),
        dictionary=str(root / "dict.txt"),
    )
    _, trainer = build_trainer([root / "text", *FLAGS, "--arch", arch, *STEPS])
    losses_of(trainer, updates)
    save(trainer, root / "model.pt")
    return root


@pytest.fixture(scope="module", params=["causal_lm_small", "causal_roberta_small"])
def folder(request, tmp_path_factory):
    return make_language_model(tmp_path_factory.mktemp(request.param), request.param, 40)


@pytest.fixture(scope="module")
def model(folder):
    """The data folder is that of the checkpoint."""
    return LanguageModel.from_run(folder / "model.pt")


def decode_without_cache(model, prompt, length):
    """Decode one prompt greedily; each step computes the whole sentence again."""
    row, new = model.encode(prompt), []
    while len(new) < length and len(row) <= 24 and (not new or new[-1] != EOS):
        with torch.no_grad():
            scores = model.network(torch.tensor([row]))[0][0, -1]
        scores[[BOS, PAD, UNK]] = -torch.inf
        new.append(int(scores.argmax()))
        row = [*row, new[-1]]
    return new[:-1] if new[-1] == EOS else new


@pytest.mark.parametrize("length", [1, 40])
def test_greedy_completion_equals_decoding_without_cache(model, length):
    for batch_size in (1, 2):
        completions = model.generate(PROMPTS, length=length, batch_size=batch_size)
        for prompt, completion in zip(PROMPTS, completions, strict=True):
            assert completion.prompt == prompt
            assert completion.tokens == decode_without_cache(model, prompt, length)


def test_sample_depends_only_on_seed_and_prompt_number(model):
    sampling = Sampling(temperature=0.9, top_k=30, top_p=0.95)

    def texts(prompts, **changes):
        found = model.generate(prompts, length=12, sampling=sampling, **{"seed": 3, **changes})
        return [completion.text for completion in found]

    together = texts(PROMPTS, batch_size=5)
    assert texts(PROMPTS, batch_size=2) == together
    assert texts(PROMPTS[2:3], first=3) == together[2:3]
    assert texts(PROMPTS, seed=4) != together
    assert len(set(texts(["un"] * 20))) > 10


def test_generation_stops_at_end_of_sentence_or_last_position(model):
    drawn = model.generate([""] * 40, length=30, sampling=Sampling(temperature=2.0))
    assert {completion.ended for completion in drawn} == {True, False}
    for completion in drawn:
        # 24 positions: </s> and 23 tokens are read, one more is predicted.
        assert len(completion.tokens) == 24 or completion.ended
        assert not {BOS, PAD, UNK, EOS} & set(completion.tokens)


def test_one_string_is_no_list_of_prompts(model):
    with pytest.raises(TypeError):
        model.generate("un livre", length=1)


def test_text_of_a_completion():
    symbols = ["<s>", "<pad>", "</s>", "<unk>", "▁un", "▁liv", "re", "▁Ω"]
    completion = completion_of("Voici un liv", [6, 7, 2], symbols)
    assert completion.text == "Voici un livre Ω"
    assert (completion.continuation, completion.tokens, completion.ended) == ("re Ω", [6, 7], True)
    assert completion_of("", [4, 5], symbols).text == "un liv"


@pytest.mark.parametrize(
    "flags", [{"top_k": 5}, {"top_p": 0.6}, {"top_k": 7, "top_p": 0.7, "temperature": 0.5}]
)
def test_sampling_distribution_equals_transformers(flags):
    torch.manual_seed(0)
    scores = 2 * torch.randn(20)
    kept = scores[None] / flags.get("temperature", 1.0)
    if "top_k" in flags:
        kept = TopKLogitsWarper(flags["top_k"])(None, kept)
    if "top_p" in flags:
        kept = TopPLogitsWarper(flags["top_p"])(None, kept)
    wanted = kept.softmax(-1)[0]
    grid = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    drawn = sample(scores.expand(len(grid), -1), Sampling(**flags), grid)
    found = drawn.bincount(minlength=20) / len(grid)
    torch.testing.assert_close(found, wanted, rtol=0, atol=2e-4)


def test_extreme_random_numbers_give_tokens_with_positive_probability():
    scores = torch.tensor([[0.0, 3.0, -torch.inf, 1.0]])
    low, high = torch.zeros(1, dtype=torch.float64), torch.full((1,), 1 - 2**-53, dtype=torch.float64)
    assert sample(scores, Sampling(), low).tolist() == [1]
    assert sample(scores, Sampling(), high).tolist() == [0]
    assert sample(scores, Sampling(top_k=1), high).tolist() == [1]


def call(capsys, *arguments):
    code = main(["generate", *(str(argument) for argument in arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_command_line_equals_the_python_interface(folder, model, capsys, tmp_path):
    common = ["--checkpoint", folder / "model.pt", "--data", folder / "text", "--length", 5]
    wanted = model.generate(PROMPTS[:3], length=5)
    code, out, _ = call(capsys, *common, *PROMPTS[:3])
    assert (code, out.split("\n")[:-1]) == (0, [completion.text for completion in wanted])
    (tmp_path / "prompts.txt").write_text("".join(f"{prompt}\n" for prompt in PROMPTS[:3]), encoding="utf-8")
    output = tmp_path / "texts.jsonl"
    words = ["--input", tmp_path / "prompts.txt", "--format", "jsonl", "--out", output]
    assert call(capsys, *common, *words)[:2] == (0, "")
    texts = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert texts == [{"prompt": c.prompt, "continuation": c.continuation, "ended": c.ended} for c in wanted]


@pytest.mark.parametrize(
    ("flags", "fact"),
    [
        (["--top-k", "3"], "--top-k: "),
        (["--sample", "--temperature", "0"], "--temperature 0: "),
        (["--sample", "--temperature", "inf"], "--temperature inf: "),
        (["--sample", "--top-p", "1.5", "--checkpoint", "none.pt"], "--top-p 1.5"),
        (["--sample", "--top-k", "0"], "--top-k 0"),
        (["--sample", "--seed", "-1"], "--seed -1"),
        (["--dict", "nothing.txt"], "nothing.txt: "),
        (["--input", "a.txt"], "TEXT and --input"),
        (["un " * 60], "prompt 2: "),
    ],
)
def test_error_names_option_file_or_prompt(folder, capsys, flags, fact):
    code, out, err = call(
        capsys, "--checkpoint", folder / "model.pt", "--data", folder / "text", "un", *flags
    )
    assert (code, out) == (1, "")
    (message,) = [line for line in err.splitlines() if not line.startswith("precision: ")]
    assert fact in message


def test_checkpoint_of_another_kind_is_an_error(folder, tmp_path, trained):
    with pytest.raises(UserError, match=rf"^{trained.run}/checkpoint_best\.pt: .*'roberta_small'"):
        LanguageModel.from_run(trained.run, dictionary=trained.root / "dict.txt")
    state = torch.load(folder / "model.pt", weights_only=True)
    state["model"] = {key: value for key, value in state["model"].items() if "lm_head" not in key}
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(UserError, match=rf"^{tmp_path}/model\.pt: .*head"):
        LanguageModel.from_run(tmp_path / "model.pt")


def test_model_is_found_in_a_folder_with_weights_only(folder, model, tmp_path):
    fp16.write(folder / "model.pt", tmp_path / "model.safetensors")
    files = {"sentencepiece_model": folder / "spm.model"}
    found = LanguageModel.from_run(tmp_path, **files)
    wanted = [one.prompt for one in model.generate(PROMPTS, length=4)]
    assert [one.prompt for one in found.generate(PROMPTS, length=4)] == wanted
    curly, straight = found.encode("c’est"), found.encode("c'est")
    with pytest.raises(UserError, match=r"--normalize-apostrophes: .*preprocess\.json"):
        LanguageModel.from_run(tmp_path, data=folder / "text", normalize_apostrophes=True)
    replaced = LanguageModel.from_run(tmp_path, **files, normalize_apostrophes=True)
    assert replaced.encode("c’est") == replaced.encode("c'est") == straight != curly


def test_files_are_found_by_the_manifest_of_a_run(folder, model, tmp_path):
    shutil.copy(folder / "model.pt", tmp_path / "checkpoint_best.pt")
    shutil.copy(folder / "dict.txt", tmp_path)
    write_manifest(tmp_path, folder / "text")
    content = manifest.read(tmp_path)
    content["data"]["sha256"] = {"dict.txt": sha256(folder / "dict.txt")}
    manifest.write(tmp_path, content)
    found = LanguageModel.from_run(tmp_path)
    assert found.generate(PROMPTS, length=4) == model.generate(PROMPTS, length=4)
    lines = (folder / "dict.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    for name, other in (("swapped.txt", [lines[1], lines[0], *lines[2:]]), ("short.txt", lines[:-2])):
        (tmp_path / name).write_text("".join(other), "utf-8")
        with pytest.raises(UserError, match=rf"{name}: .*--dict"):
            LanguageModel.from_run(tmp_path, dictionary=tmp_path / name)
