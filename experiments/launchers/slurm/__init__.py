"""SLURM: one job array for a sweep (`array`), its queue (`queue`), one task on a node (`task`)."""
