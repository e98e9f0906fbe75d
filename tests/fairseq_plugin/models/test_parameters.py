"""The command `parameters`: formulas against built models."""

import pytest

from roberta_small.experiments.__main__ import main


def printed_table(capsys, *flags):
    assert main(["parameters", *flags]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("arch", "figures"),
    [
        ("roberta_small", "22,829,056 22,807,552 23,388,418"),
        # The published left-to-right model: embeddings, layers, LM head; as LM and as classifier.
        ("causal_lm_small", "10,000,200 10,050,201 402 21,018,401 10,968,602"),
        # roberta_small's 22,829,056 and heads without the row and the bias of <mask>.
        ("causal_roberta_small", "22,828,544 23,124,223 23,092,226"),
    ],
)
def test_totals(capsys, arch, figures):
    printed = printed_table(capsys, "--arch", arch)
    for figure in figures.split():
        assert figure in printed


def test_formula_and_model_agree_for_other_sizes(capsys):
    flags = "--encoder-layers 1 --encoder-embed-dim 8 --encoder-ffn-embed-dim 20 --encoder-attention-heads 2 "
    flags += "--arch roberta_base --vocabulary 100 --max-positions 16 --num-classes 5"
    for line in printed_table(capsys, *flags.split()).splitlines()[2:-3]:
        _, _, _, value, count, _ = line.split("|")
        assert value.strip() == count.strip() != "0"


@pytest.mark.parametrize(
    ("flags", "facts"),
    [
        (["--arch", "roberta_tiny"], ["--arch roberta_tiny", "roberta_small"]),
        (["--arch", "transformer_lm"], ["--arch transformer_lm"]),
        (["--arch", "roberta_prenorm", "--encoder-layers", "1"], ["--arch roberta_prenorm", "layer_norm"]),
        (["--vocabulary", "3"], ["--vocabulary 3"]),
        (["--encoder-embed-dim", "10", "--encoder-attention-heads", "3"], ["dim 10", "heads 3"]),
    ],
)
def test_invalid_flags_are_an_error(capsys, flags, facts):
    assert main(["parameters", *flags]) == 1
    error = capsys.readouterr().err
    assert all(fact in error for fact in facts), error
    assert error.count("\n") == 1
