"""The SLURM launcher: the job array of a sweep (`array`), the queue (`queue`), a task on a node (`task`)."""
