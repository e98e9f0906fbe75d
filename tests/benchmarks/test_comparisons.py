"""Each kind of contender once, in its own process (a fork), on a model of one layer."""

import json
import math
import re
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain, pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq import options
from fairseq.data import data_utils
from torch.utils.flop_counter import FlopCounterMode
from transformers import RobertaConfig, RobertaForMaskedLM, RobertaForSequenceClassification

from benchmarks import fairseq_commands, tools
from benchmarks.__main__ import main
from benchmarks.comparisons import classify, finetune, floor, masked_lm
from benchmarks.comparisons.finetune import batches_by_length, fairseq_batches, read_reviews
from benchmarks.measure import execute
from benchmarks.settings import Sizes
from roberta_small.common.data_folder import read_sizes
from roberta_small.common.errors import UserError
from roberta_small.experiments.provenance import Machine
from roberta_small.fairseq_plugin.models import parameters
from roberta_small.preprocess.__main__ import main as preprocess
from tests.support import tiny_models, tiny_tokenizers
from tests.support.training import INPUT, STEPS, STOCK, build_trainer

pytestmark = [pytest.mark.usefixtures("fast_processes"), pytest.mark.long]


@pytest.fixture
def with_bf16(monkeypatch):
    """Also where it is slow."""
    monkeypatch.setattr(tools, "precisions", lambda settings: ("fp32", "bf16"))


def run(contenders, name, settings):
    """The record of the contender of that name."""
    return execute(named(contenders, name), settings, name)


def named(contenders, name):
    return next(contender for contender in contenders if contender.name == name)


def test_stock_and_ours_train_on_the_same_batches(settings, with_bf16):
    contenders = finetune.contenders(settings)
    stock = run(contenders, "stock fairseq, fp32", settings)
    own = named(contenders, "ours, fp32")
    # The packed encoder draws other random numbers for dropout.
    ours = execute(replace(own, command=(*own.command, "--encoder", "padded")), settings, "padded")
    for record in (stock, ours):
        assert len(record["seconds"]) == 3  # of 5: one to warm up, one without end
        assert 0 < sum(record["seconds"]) < record["wall"]
    assert stock["tokens"] == ours["tokens"] == tokens_of_updates(settings)
    assert stock["losses"] == pytest.approx(ours["losses"], abs=0.001)  # stock logs three digits


def test_transformers_trains_on_the_same_sentences(settings, with_bf16):
    record = run(finetune.contenders(settings), "Transformers, bf16, by length", settings)
    assert len(record["seconds"]) == len(record["tokens"]) == 3
    assert sum(record["tokens"]) == sum(tokens_of_updates(settings))
    assert record["losses"][0] == pytest.approx(math.log(2), abs=0.1)


def tokens_of_updates(settings):
    """Of the timed ones."""
    lengths = floor.sentence_lengths(settings)
    batches = fairseq_batches(len(lengths), batch_size=8, seed=1, updates=settings.updates)
    return [lengths[batch].sum() for batch in batches[settings.warm_up : -1]]


@pytest.mark.parametrize("comparison", [finetune, masked_lm, classify])
def test_on_a_gpu_stock_fairseq_has_fp16_and_large_batches(settings, with_bf16, monkeypatch, comparison):
    monkeypatch.setattr(fairseq_commands, "checkpoint", lambda who, settings: Path(f"{who}.pt"))
    for module in (finetune, classify):
        monkeypatch.setattr(module, "peer", lambda settings: Path("peer"))
    on_gpu = replace(settings, machine=Machine(("H100",), threads=1))
    (stock,) = (one for one in comparison.contenders(on_gpu) if one.quick and "stock" in one.name)
    assert "fp16" in stock.name
    data = settings.corpus if comparison is masked_lm else settings.data
    words = list(stock.command[stock.command.index(str(data)) :])
    parser = options.get_validation_parser() if comparison is classify else options.get_training_parser()
    args = options.parse_args_and_arch(parser, words)
    assert args.fp16
    assert not args.cpu
    assert args.batch_size == {finetune: 8, masked_lm: 2, classify: 128}[comparison]


def test_masked_lm_returns_its_model_flops(settings):
    result = masked_lm.run(replace(settings, quick=True))
    for row in result["contenders"]:
        assert row["rounds"][0]["tokens"] == [2 * 16] * 2  # of four updates
        assert row["flops_per_second"] == result["flops"] / row["median"]
        share = row["flops_per_second"] / result["fastest_matrix_rate"]
        assert row["share_of_matrix_rate"] == share
    losses = [row["rounds"][0]["losses"][0] for row in result["contenders"]]
    assert losses[0] == pytest.approx(losses[1], abs=0.1)


def test_the_floor_adds_products_and_memory_traffic(settings):
    result = floor.run(settings)
    rates = floor.machine_rates(settings)
    found = {row["quantity"]: row["value"] for row in result["quantities"]}
    assert found["fine-tuning update, floor"] == pytest.approx(result["floor_seconds"] * 1e3)
    products = found["fine-tuning update, model"] * 1e9 / floor.best_rate(rates)
    traffic = 28 * result["parameters"] / max(rates["memory"].values())
    assert result["floor_seconds"] == pytest.approx(products + traffic)
    tokens = round(8 * floor.sentence_lengths(settings).mean())
    assert set(rates["matrix"]) == {f"{tokens}x16x16", "5x16x45"}  # 15 % of 32 tokens
    sizes = settings.sizes
    args = SimpleNamespace(
        arch="roberta_small", vocabulary=45, num_classes=fairseq_commands.classes(settings),
        max_positions=256, encoder_layers=sizes.layers, encoder_embed_dim=sizes.embed,
        encoder_ffn_embed_dim=sizes.ffn, encoder_attention_heads=sizes.heads,
    )  # fmt: skip
    model = parameters.build(args)
    model.register_classification_head("head", num_classes=args.num_classes)
    assert result["parameters"] == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("kind", [RobertaForSequenceClassification, RobertaForMaskedLM])
def test_flops_are_those_that_torch_counts(kind):
    length, vocabulary, classes, sizes = 24, 100, 5, Sizes(layers=3, embed=32, ffn=48, heads=4)
    config = RobertaConfig(
        vocab_size=vocabulary, hidden_size=32, intermediate_size=48, num_hidden_layers=3,
        num_attention_heads=4, num_labels=classes, max_position_embeddings=66, attn_implementation="eager",
    )  # fmt: skip
    with FlopCounterMode(display=False) as counter:
        kind(config)(torch.randint(4, vocabulary, (1, length))).logits.sum().backward()
    found = parameters.encoder(sizes.layers, sizes.embed, sizes.ffn, length, length**2)
    masked_lm_head = parameters.masked_lm_head(sizes.embed, vocabulary, length)
    is_lm = kind is RobertaForMaskedLM
    found += masked_lm_head if is_lm else parameters.classifier_head(sizes.embed, classes, 1)
    assert found == counter.get_total_flops()


def test_the_test_split_is_classified_by_all(settings, with_bf16):
    contenders = classify.contenders(settings)
    others = ("stock fairseq, fp32, batches of 1", "Transformers, fp32, sorted", "ONNX Runtime, int8, sorted")
    _, ours, int8, transformers, onnx = records = [
        run(contenders, name, settings) for name in (others[0], "ours", "ours, int8", *others[1:])
    ]
    for record in records:
        assert 0 < record["seconds"][0] < record["wall"]
    log = (settings.output / "logs" / "stock-fairseq-fp32-batches-of-1.txt").read_text()
    assert re.search(r'"test_loss"', log)
    assert 0 <= ours["correct"] <= len(read_sizes(settings.data / "input0" / "test.idx"))
    assert abs(ours["correct"] - int8["correct"]) <= 2
    assert {transformers["batch_size"], onnx["batch_size"]} <= {1, 8, 32}


def test_batches_and_ids_are_those_of_stock_fairseq(settings):
    prefix = settings.data / "input0" / "train"
    dataset = data_utils.load_indexed_dataset(str(prefix))
    sentences = [review["input_ids"] for review in read_reviews(finetune.peer(settings), "train")]
    assert [ids.tolist() for ids in sentences] == [[0, *row.tolist()][:256] for row in dataset]
    _, trainer = build_trainer([settings.data, *STOCK, *INPUT, *STEPS, "--optimizer", "adam"])
    wanted = []
    for epoch in (1, 2):
        iterator = trainer.get_train_iterator(epoch=epoch, load_dataset=epoch == 1)
        for sample in iterator.next_epoch_itr(shuffle=True):
            wanted.append([ids[ids != 1].tolist() for ids in sample["net_input"]["src_tokens"]])
    batches = fairseq_batches(len(sentences), batch_size=8, seed=1, updates=len(wanted))
    assert [[sentences[index].tolist() for index in batch] for batch in batches] == wanted


def test_grouping_by_length_times_the_same_sentences():
    sizes = np.random.default_rng(0).integers(1, 99, 48)
    batches = fairseq_batches(48, batch_size=4, seed=1, updates=9)
    grouped = batches_by_length(sizes, 4, 9, 2)
    assert grouped[:2] + grouped[-1:] == batches[:2] + batches[-1:]
    assert sorted(chain(*grouped)) == sorted(chain(*batches))
    assert [len(batch) for batch in grouped] == [4] * 9
    ranges = sorted((sizes[batch].min(), sizes[batch].max()) for batch in grouped[2:-1])
    assert all(high <= low for (_, high), (low, _) in pairwise(ranges))
    assert [sizes[batch[0]] for batch in grouped] != sorted(sizes[batch[0]] for batch in grouped)


def test_an_encoder_is_measured_after_all_tools_agree(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RS_CACHE", str(tmp_path / "cache"))
    encoder, data, out = tmp_path / "encoder", tmp_path / "data", tmp_path / "out"
    tiny_models.write(encoder, "bert", "encoder")
    tiny_tokenizers.write_csv(tmp_path / "reviews.csv", ["bad", "good"])
    words = ["prepare", str(tmp_path / "reviews.csv"), "--tokenizer", str(encoder), "--out", str(data)]
    assert preprocess(words) == 0
    words = ["finetune", "classify", "--quick", "--rounds", 1, "--updates", 3, "--device", "cpu"]
    assert main([*map(str, words), "--encoder", str(encoder), "--data", str(data), "--out", str(out)]) == 0
    document = json.loads((out / "benchmarks.json").read_text())
    update, vectors = document["benchmarks"]
    installed = find_spec("sentence_transformers") is not None
    assert ("sentence-transformers is left out" in capsys.readouterr().err) != installed
    assert [row["ours"] for row in vectors["contenders"]] == [False] * (1 + installed) + [True]
    assert [row["ours"] for row in update["contenders"]] == [False, True]
    assert update["agreement"].keys() == vectors["agreement"].keys() >= {"fp32"}
    assert max(update["agreement"]["fp32"], vectors["agreement"]["fp32"]) < 1e-5
    assert vectors["sentences"] == 6
    assert (out / "benchmarks.md").read_text().count(" texts/s |") == len(vectors["contenders"])
    tokens = [row["rounds"][0]["tokens"] for row in update["contenders"]]
    assert tokens[0] == tokens[1]
    assert document["settings"]["data"] == "data in tokens of encoder"


def test_a_tool_that_differs_is_not_timed(settings, monkeypatch):
    vectors = {"a": [[1.0, 0.0]], "b": [[1.0, 1e-3]]}
    monkeypatch.setattr(tools, "execute", lambda contender, settings, title: {"out": vectors[contender.name]})
    commands = dict.fromkeys(vectors, lambda precision: (precision,))
    monkeypatch.setattr(tools, "precisions", lambda settings: ("bf16",))
    found = tools.agreement(commands, settings, lambda tool, record: record["out"])
    assert found == {"bf16": pytest.approx(1e-3)}
    monkeypatch.setattr(tools, "precisions", lambda settings: ("fp32",))
    with pytest.raises(UserError, match="b in fp32"):
        tools.agreement(commands, settings, lambda tool, record: record["out"])


def test_an_emulated_precision_is_left_out_with_a_line(settings, monkeypatch, capsys):
    monkeypatch.setattr(tools, "execute", lambda *_: {"fast": False, "reason": "emulated"})
    slow = replace(settings, updates=4)
    found = [*tools.of_tool("x, {}", lambda precision: (precision,), slow), *tools.ours(lambda p: (p,), slow)]
    assert [(one.name, one.command, one.quick) for one in found] == [
        ("x, fp32", ("fp32",), False), ("x, fp32, our variables", ("fp32",), True), ("ours", ("auto",), True),
    ]  # fmt: skip
    assert capsys.readouterr().err == "bf16 is left out (emulated)\n"
