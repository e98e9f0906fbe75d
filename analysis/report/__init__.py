"""One HTML file about a set of runs: sentences, figures, tables and provenance."""
