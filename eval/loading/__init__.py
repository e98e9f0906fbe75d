"""From a run folder or checkpoint to a network and its input: checkpoint, dictionary, tokenizer, data."""
