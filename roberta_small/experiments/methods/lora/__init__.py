"""LoRA: low-rank adapters of the sentence classifier and of causal language models."""
