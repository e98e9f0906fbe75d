"""Launchers: processes on this machine (`local`), or tasks of a SLURM job array (`slurm`)."""
