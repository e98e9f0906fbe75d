"""Checkpoints: safe loading, checks of the initial one, PPMI-SVD initialization, fp16 export."""
