"""Definitions that several packages use: errors, files, the command line, runs, data folders, tables.

The package imports the standard library, NumPy, pandas and SciPy. It never imports torch, so that `analysis`
runs without it.
"""
