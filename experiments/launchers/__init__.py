"""Launchers start the runs: as processes on this machine (`local`) or as a SLURM job array (`slurm`)."""
