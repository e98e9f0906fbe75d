"""fairseq checkpoints to from_pretrained folders, and back."""
