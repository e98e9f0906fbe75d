"""Stock tasks of fairseq train exactly the same with and without the plugin."""

import json
import re
import subprocess

import pytest

from tests.support import preloaded, training

TASKS = ("translation", "language_modeling", "masked_lm")
PROGRAM = """
import random, sys
sys.path.insert(0, {root!r})
if {plugin}:
    import roberta_small.fairseq_plugin
from fairseq_cli import preprocess, train
from fairseq import options

draw = random.Random(1)
words = [f"w{{i}}" for i in range(40)]
for name in ("train.a", "train.b", "valid.a", "valid.b"):
    lines = [" ".join(draw.choices(words, k=draw.randint(3, 12))) for _ in range(48)]
    open(name, "w").write("\\n".join(lines) + "\\n")

def binarize(*flags):
    preprocess.main(options.get_preprocessing_parser().parse_args(
        ["--trainpref", "train", "--validpref", "valid", "--workers", "1", *flags]))

binarize("--source-lang", "a", "--target-lang", "b", "--destdir", "pair")
preprocess.main(options.get_preprocessing_parser().parse_args(
    ["--only-source", "--trainpref", "train.a", "--validpref", "valid.a", "--destdir", "text"]))
STEPS = ("--optimizer adam --lr 1e-3 --max-update 4 --cpu --seed 3 --log-format json --log-interval 1 "
         "--disable-validation --no-save --num-workers 0 --distributed-world-size 1")
SIZES = "--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2 "
for command in (
    "pair --task translation --arch transformer_iwslt_de_en --decoder-layers 1 --decoder-embed-dim 16 "
    "--decoder-ffn-embed-dim 16 --decoder-attention-heads 2 --max-tokens 200 " + SIZES,
    "text --task language_modeling --arch transformer_lm --decoder-layers 1 --decoder-embed-dim 16 "
    "--decoder-ffn-embed-dim 16 --decoder-attention-heads 2 --tokens-per-sample 16 --batch-size 4",
    "text --task masked_lm --criterion masked_lm --arch roberta_base --tokens-per-sample 16 --batch-size 4 "
    "--max-positions 32 " + SIZES,
):
    print("TASK", command.split()[2], flush=True)
    sys.argv = ["fairseq-train", *command.split(), *STEPS.split()]
    train.cli_main()
"""


def losses(folder, plugin):
    """Task -> the loss that fairseq logs after each update."""
    folder.mkdir()
    program = PROGRAM.format(root=str(training.ROOT), plugin=plugin)
    done = subprocess.run(
        [preloaded.python(), "-c", program], cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
    found, task = {}, None
    for line in done.stdout.splitlines():
        if line.startswith("TASK "):
            task = line.split()[1]
        elif match := re.search(r"train_inner\W+(\{.*\})", line):
            found.setdefault(task, []).append(json.loads(match[1])["loss"])
    return found


@pytest.mark.long
def test_stock_tasks_have_the_same_losses_with_the_plugin(tmp_path):
    stock, ours = losses(tmp_path / "stock", False), losses(tmp_path / "plugin", True)
    assert {task: len(values) for task, values in stock.items()} == dict.fromkeys(TASKS, 4)
    assert ours == stock
