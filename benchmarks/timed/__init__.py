"""Programs that run in separate processes and write their times to a file; see `benchmarks.measure`."""
