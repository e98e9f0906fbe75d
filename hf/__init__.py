"""Everything that runs on Transformers: `python -m hf --help` for the commands.

In Python, what the commands stand on:

    from hf.config import Sizes              # the sizes of roberta_small, or of a checkpoint
    from hf.models import random_classifier  # those sizes, random weights
    from hf.models import converted          # a checkpoint as it is: classifier or masked LM
    from hf.tokenizer import write_tokenizer # SentencePiece model + dict.txt -> tokenizer files

Transformers is imported by those modules alone: `--help` does not wait for it.
"""
