"""fairseq checkpoints as from_pretrained folders, and back."""
