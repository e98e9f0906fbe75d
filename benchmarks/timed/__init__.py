"""What runs in a process of its own and writes its times to a file; see `benchmarks.measure`."""
