"""Hyperparameters: recipe files, grids, the length and the architecture of runs, and the checks of flags."""
