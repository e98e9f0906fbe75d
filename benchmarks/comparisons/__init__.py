"""The comparisons, one module each: this project and its peers on the same work."""
