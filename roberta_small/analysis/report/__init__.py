"""The report, a single HTML file: summary, figures, tables and provenance of a set of runs."""
