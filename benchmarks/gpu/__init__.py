"""Checks and measurements on a GPU machine, also without a network: `make gpu-kit`, then `check.sh`."""
