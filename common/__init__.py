"""What every room shares: one-line errors, safe files and the run-folder contract.

Only the standard library is imported here, so that `analysis` runs without torch.
"""
