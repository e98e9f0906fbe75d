"""Plans and trains runs: which runs exist, where they are written, which are finished.

    settings -> prepare -> sweep -> plan -> execute -> manifest.json

`train.py` has the steps of a command in order; start reading there. `methods/` contains the trainers, which
all go through the loop of `execute.py`.
"""
