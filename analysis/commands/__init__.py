"""The commands of `python -m analysis`, grouped into modules."""
