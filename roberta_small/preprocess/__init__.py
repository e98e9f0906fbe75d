"""From raw text to the binary data that fairseq trains on; independent of models and training."""
