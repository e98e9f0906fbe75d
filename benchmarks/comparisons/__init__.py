"""The comparisons, one per module: this project and other tools on the same task."""
