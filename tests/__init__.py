"""Tests of the project; what several of them share is in `tests/support`."""
