"""What all packages share: errors, files, the command line, runs and manifests, data folders, tables.

The package imports the standard library, NumPy and pandas. It never imports torch, so that `analysis` runs
without it.
"""
