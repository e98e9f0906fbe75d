"""Run folders, logs and pages for the tests of `analysis`."""
