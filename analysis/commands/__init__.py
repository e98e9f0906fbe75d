"""The commands of `python -m analysis`, one module for each group of them."""
