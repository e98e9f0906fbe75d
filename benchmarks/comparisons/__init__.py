"""The comparisons: one module each, with a function `run(settings)` that returns the result of `compare`.

To add one, write a module with the contenders and list it in `COMPARISONS`. The first line of its docstring
describes it in `python -m benchmarks --help`.
"""

from benchmarks.comparisons import classify, finetune, floor, masked_lm

COMPARISONS = {
    module.__name__.rpartition(".")[2].replace("_", "-"): module
    for module in (floor, finetune, masked_lm, classify)
}
