"""Everything that runs on Transformers: `python -m hf --help` for the commands.

In Python, what the commands stand on:

    from export.transformers.config import Sizes              # the sizes of roberta_small, or of a checkpoint
    from export.transformers.config import random_classifier  # those sizes, random weights
    from export.transformers.config import converted          # a checkpoint as it is: classifier or masked LM
    from export.transformers.tokenizer import write_tokenizer # SentencePiece model, dict.txt -> its files

Transformers is imported by those modules alone: `--help` does not wait for it.
"""
