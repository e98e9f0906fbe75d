"""Each kind of contender once, in its own process (a fork), on a model of one layer."""

import argparse
import math
import re
import sys
from dataclasses import replace
from itertools import chain

import preloaded
import pytest

from benchmarks import command_line, flops, sample
from benchmarks import report as reports
from benchmarks.comparisons import binarize, busy, causal, classify, finetune, floor, masked_lm, start, sweep
from benchmarks.measure import NOT_INSTALLED, compare, execute
from benchmarks.sentences import fairseq_batches, read_sentences, read_sizes
from benchmarks.timed import transformers_train
from roberta_small.common.errors import UserError
from roberta_small.preprocess.__main__ import main as preprocess


@pytest.fixture(autouse=True, scope="module")
def _fast_start():
    """Start the processes with the preloaded interpreter: no time is tested here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", preloaded.python())
        yield


def run(contenders, name, settings, tmp_path):
    """The record of the contender of that name."""
    return execute(named(contenders, name), settings, tmp_path / "log")


def named(contenders, name):
    return next(contender for contender in contenders if contender.name == name)


def test_stock_and_ours_train_on_the_same_batches(settings, tmp_path):
    contenders = finetune.contenders(settings)
    stock = run(contenders, "stock fairseq, fp32", settings, tmp_path)
    ours = run(contenders, "ours, fp32, padded", settings, tmp_path)
    for record in (stock, ours):
        assert len(record["seconds"]) == 3  # of 5: one to warm up, one without end
        assert 0 < sum(record["seconds"]) < record["wall"]
    assert stock["tokens"] == ours["tokens"] == tokens_of_updates(settings)
    assert stock["losses"] == pytest.approx(ours["losses"], abs=0.001)  # stock logs three digits


def test_transformers_trains_on_the_same_sentences(settings, tmp_path):
    pytest.importorskip("accelerate")
    contenders = finetune.contenders(settings)
    record = run(contenders, "Transformers, bf16, by length", settings, tmp_path)
    assert len(record["seconds"]) == len(record["tokens"]) == 3
    assert sum(record["tokens"]) == sum(tokens_of_updates(settings))
    assert record["losses"][0] == pytest.approx(math.log(2), abs=0.1)


def test_accumulated_batches_are_one_update_of_the_same_sentences(settings, tmp_path):
    pytest.importorskip("accelerate")
    changed = replace(settings, best_only=True, batch_size=16)
    accumulated, plain, _ = finetune.contenders(changed)
    records = [execute(contender, changed, tmp_path / "log") for contender in (accumulated, plain)]
    assert len(records[0]["seconds"]) == len(records[1]["seconds"]) == 3
    assert sum(records[0]["tokens"]) == sum(records[1]["tokens"])
    assert len(records[0]["losses"]) == 5
    assert records[0]["losses"][0] == pytest.approx(records[1]["losses"][0], abs=0.02)


def test_quick_compares_the_fastest_setting_of_each_tool(settings):
    quick = [one for one in finetune.contenders(settings) if one.quick]
    assert [one.name.split(",")[0] for one in quick] == ["stock fairseq", "ours", "Transformers"]
    assert all(one.environment for one in quick)  # the same variables for all
    assert [one.ours for one in masked_lm.contenders(settings) if one.quick] == [False, True, True]


def test_of_other_sizes_only_the_fastest_are_compared(settings):
    changed = replace(settings, best_only=True, max_positions=32, batch_size=16)
    accumulated, transformers, ours = finetune.contenders(changed)
    assert accumulated.command == (*transformers.command[:-2], "--accumulate=2", *transformers.command[-2:])
    assert (transformers.ours, ours.ours) == (False, True)
    assert transformers.environment == ours.environment
    assert {"--max-positions=32", "--batch-size=16", "--group", "bf16"} <= set(transformers.command)
    words = " ".join(ours.command)
    assert all(flags in words for flags in ("--max-positions 32", "--batch-size 16", "--precision auto"))


def tokens_of_updates(settings):
    """Of the timed ones."""
    sentences = read_sentences(settings.data / "input0" / "train", first=0, longest=settings.max_positions)
    batches = fairseq_batches(len(sentences), batch_size=8, seed=1, updates=settings.updates)
    return [sum(len(sentences[index]) for index in batch) for batch in batches[settings.warm_up : -1]]


def test_masked_lm_tells_its_model_flops(settings, monkeypatch):
    only = ("stock fairseq, fp32", "ours", masked_lm.RECIPE)
    monkeypatch.setattr(masked_lm, "recipe_blocks", lambda: 1)
    every = masked_lm.contenders(settings)
    monkeypatch.setattr(masked_lm, "contenders", lambda _: [named(every, name) for name in only])
    result = masked_lm.run(settings)
    stock, ours, recipe = result["contenders"]
    # Two updates of a block have the tokens of one of the others. The LM head also scores <s> of each block.
    assert recipe["rounds"][0]["tokens"] == [2 * 16] * 5  # of eight updates
    vocabulary = command_line.vocabulary(settings.corpus / "dict.txt")
    head = flops.lm_head(settings.sizes, vocabulary, 2)
    assert recipe["flops_per_second"] == (result["flops"] + head) / recipe["median"]
    for row in (stock, ours):
        assert row["rounds"][0]["tokens"] == [2 * 16] * 2  # of four updates
        assert row["flops_per_second"] == result["flops"] / row["median"]
        share = row["flops_per_second"] / result["fastest_matrix_rate"]
        assert row["share_of_matrix_rate"] == share
    losses = [row["rounds"][0]["losses"][0] for row in (stock, ours)]
    assert losses[0] == pytest.approx(losses[1], abs=0.1)


def test_left_to_right_trains_on_what_the_plain_loop_does(settings, tmp_path):
    contenders = causal.finetune_contenders(settings)
    plain = run(contenders, "plain PyTorch, fp32", settings, tmp_path)
    ours = run(contenders, "ours", settings, tmp_path)
    assert plain["tokens"] == ours["tokens"] == tokens_of_updates(settings)
    for losses in (plain["losses"], [loss * math.log(2) for loss in ours["losses"]]):
        assert 0.2 < losses[0] < 2.5  # of two classes, from random weights
    contenders = causal.pretrain_contenders(settings)
    plain = run(contenders, "plain PyTorch, bf16", settings, tmp_path)
    ours = run(contenders, "ours", settings, tmp_path)
    assert plain["tokens"] == ours["tokens"] == [2 * 16] * 2


def test_the_floor_adds_products_and_memory_traffic(settings):
    result = floor.run(settings)
    rates = floor.machine_rates(settings)
    found = {row["quantity"]: row["value"] for row in result["quantities"]}
    assert found["fine-tuning update, floor"] == pytest.approx(result["floor_seconds"] * 1e3)
    products = found["fine-tuning update, model"] * 1e9 / floor.best_rate(rates)
    traffic = 28 * result["parameters"] / max(rates["memory"].values())
    assert result["floor_seconds"] == pytest.approx(products + traffic)
    assert result["formula"] == flops.CLASSIFIER
    sentences = read_sentences(settings.data / "input0" / "train", first=0, longest=256)
    tokens = round(8 * sum(map(len, sentences)) / len(sentences))
    assert set(rates["matrix"]) == {f"{tokens}x16x16", "5x16x45"}  # 15 % of 32 tokens


def test_the_test_split_is_classified_by_all(settings, tmp_path):
    contenders = classify.contenders(settings)
    names = ("stock fairseq, fp32, batches of 8", "ours", "Transformers, fp32, sorted")
    _, ours, transformers = records = [run(contenders, name, settings, tmp_path / name) for name in names]
    for record in records:
        assert 0 < record["seconds"][0] < record["wall"]
    assert re.search(r'"test_loss"', (tmp_path / names[0] / "log").read_text())
    assert 0 <= ours["correct"] <= len(read_sizes(settings.data / "input0" / "test"))
    assert transformers["batch_size"] in (1, 8, 32)
    base = classify.contenders(replace(settings, best_only=True))
    assert [one.name for one in base] == ["Transformers, bf16, sorted, our variables", "ours"]


def test_the_profile_counts_the_operators_of_its_updates(settings, monkeypatch):
    monkeypatch.setattr(finetune, "OPERATORS", 1000)
    result = finetune.profile(settings)
    rows = {row["operator"]: row for row in result["operators"]}
    assert rows["aten::_fused_adamw_"]["calls"] == finetune.PROFILED
    times = [row["ms"] for row in result["operators"]]
    assert times == sorted(times, reverse=True)
    assert sum(times) <= result["total_ms"] * 1.0001
    assert "| aten::" in reports.profile(result)


def test_the_sweep_is_six_runs_for_both(settings, tmp_path):
    loop, _, *ours = sweep.contenders(settings)
    script = loop.command[-1].splitlines()
    assert loop.scale * len(script) == 6
    assert ["--restore-file" in line for line in script] == [False, True]
    for contender in (ours[0], ours[-1]):
        words = list(contender.command)
        words.insert(words.index("--"), "--dry-run")
        log = tmp_path / "log"
        execute(type(contender)("dry", tuple(words), contender.environment), settings, log)
        assert log.read_text().count("fairseq-train ") == 6


@pytest.mark.parametrize("number", [0, 1], ids=["one after another", "two at a time"])
def test_stock_runs_of_the_sweep_validate_and_save(settings, tmp_path, number):
    stock = sweep.contenders(settings)[number]
    record = execute(stock, settings, tmp_path / "log")
    assert record["seconds"] == [pytest.approx(3 * record["wall"])]
    for init in ("random", "pretrained"):
        assert (settings.scratch / "sweep" / "stock" / init / "checkpoint_best.pt").is_file()
        assert list((settings.scratch / "sweep" / "stock" / init / "tensorboard").rglob("events*"))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Fields of the settings for a little text with a vocabulary of its own."""
    folder = tmp_path_factory.mktemp("text")
    preprocess(["sample", "--destdir", str(folder / "text")])
    lines = (folder / "text" / "corpus.train.txt").read_text(encoding="utf-8").splitlines()[:1500]
    path, model, dictionary = folder / "news.txt", folder / "own.model", folder / "dict.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = ["--text", str(path), "--sentencepiece-model", str(model), "--output", str(dictionary)]
    preprocess(["vocabulary", "--train", "--size", "300", *words])
    return {"text": path, "sentencepiece_model": model, "srcdict": dictionary}


def test_binarized_files_are_compared(settings, text):
    result = binarize.run(replace(settings, **text))
    stock, ours = result["contenders"]
    assert [stock["ours"], ours["ours"]] == [False, True]
    size = text["text"].stat().st_size
    assert ours["bytes_per_second"] == size / ours["median"]
    assert result["text"]["bytes"] == size


def test_different_files_are_an_error(tmp_path):
    for name, content in (("stock", b"a"), ("ours", b"b")):
        (tmp_path / name).mkdir()
        for file in binarize.FILES:
            (tmp_path / name / file).write_bytes(content if file == "train.bin" else b"same")
    with pytest.raises(UserError, match=r"\btrain\.bin$"):
        binarize.check_identical(tmp_path)


def test_the_speed_beside_a_process_is_compared_with_that_alone(settings):
    result = busy.run(settings)
    assert len(result["rates"]) == 6
    shares = {row["quantity"]: row["value"] for row in result["quantities"] if row["unit"] == "%"}
    assert len(shares) == 3
    rates = result["rates"]["fine-tuning, updates"]
    wanted = 100 * rates["beside"][0] / rates["alone"][0]  # of one round
    assert shares["fine-tuning, updates beside a process, share of the speed alone"] == pytest.approx(wanted)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return sample.make(tmp_path_factory.mktemp("sample"))


def test_the_time_of_commands_is_measured_warm_and_cold(settings, made, monkeypatch):
    emptied = []
    monkeypatch.setattr(start, "REPETITIONS", 1)
    monkeypatch.setattr(start, "HELP", ("eval predict",))
    monkeypatch.setattr(start, "_can_empty_caches", lambda: True)
    monkeypatch.setattr(start, "_empty_caches", lambda: emptied.append(1))
    monkeypatch.setattr(start, "_sweep", lambda folder: ("mkdir", str(folder)))
    result = start.run(replace(settings, data=made["data"]))
    assert len(emptied) == 6
    *commands, sweeps = result["seconds"].values()
    assert len(commands) == 6
    for by_state in commands:
        assert {state: len(values) for state, values in by_state.items()} == {"warm": 1, "cold": 1}
    assert {state: len(values) for state, values in sweeps.items()} == {"warm": start.SWEEPS}
    assert [row["quantity"] for row in result["quantities"][-2:]] == [
        "eval predict --help, cold",
        "make sweep, median of 5, warm",
    ]


def test_the_sample_has_all_that_is_measured(made):
    assert all(path.exists() for path in made.values())
    assert (made["data"] / "input0" / "test.bin").is_file()
    assert (made["corpus"] / "train.bin").is_file()


def test_grouping_by_length_times_the_same_sentences(settings):
    found = {}
    for group in (False, True):
        args = argparse.Namespace(batch_size=8, updates=6, warm_up=2, group=group, accumulate=1)
        found[group] = transformers_train.batches_of(args, [{"input_ids": [0] * n} for n in range(48)])
    assert found[True][:2] + found[True][-1:] == found[False][:2] + found[False][-1:]
    assert sorted(chain(*found[True][2:-1])) == sorted(chain(*found[False][2:-1]))
    assert found[True] != found[False]


def test_a_problem_of_a_peer_is_one_row(settings):
    missing = finetune.Contender("absent", ("true",), needs="no_such_module")
    result = compare("finetune", "Fine-tuning", [missing], settings)
    assert NOT_INSTALLED in reports.table([result])
