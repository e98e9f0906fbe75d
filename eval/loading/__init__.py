"""From a run or checkpoint folder to a network and its input: checkpoint, vocabulary, tokenizer, data."""
