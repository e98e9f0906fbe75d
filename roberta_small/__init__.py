"""Train, compare and trust small RoBERTa sentence classifiers in fairseq.

The folders of the repository are the packages below this name (pyproject.toml, `package-dir`): `analysis/` is
`roberta_small.analysis`, and so on. Importing this package imports none of them.
"""
