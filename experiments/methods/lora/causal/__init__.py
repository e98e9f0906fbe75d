"""LoRA of a causal language model on pairs of questions and answers."""
