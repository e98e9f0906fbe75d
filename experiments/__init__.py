"""Plans and trains runs: which runs exist, where they are written, which are finished.

    settings -> prepare -> recipe, grid, inputs -> experiment -> plan -> launcher -> manifest.json

`methods/` contains the trainers, `launchers/` starts their processes. A sweep is all runs of one command,
over initializations, seeds and grid settings. Start reading at `train.py`, which contains its steps in
order. `suite.py` repeats a command for several data sets.
"""

from roberta_small.common.files import ROOT

__all__ = ["ROOT"]
