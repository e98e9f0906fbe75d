"""Models: RoBERTa with a packed encoder, left-to-right models, parameter counts."""
