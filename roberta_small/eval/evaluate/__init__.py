"""`evaluate`: from checkpoints or prediction files to metrics with intervals, and a page of the errors."""
