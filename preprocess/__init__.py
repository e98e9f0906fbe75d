"""From raw text to the binary data fairseq trains on; knows nothing of models or training."""
