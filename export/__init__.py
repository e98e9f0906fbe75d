"""Write a trained model in another format: Transformers, fairseq, ONNX or fp16 (`python -m export --help`).

In Python:

    from export.transformers.to_transformers import convert   # run or checkpoint -> from_pretrained folder
    from export.transformers.to_fairseq import convert_back   # from_pretrained folder -> fairseq checkpoint
    from export.transformers.roberta import converted         # checkpoint in memory -> Transformers model
    from export.transformers.roberta import random_classifier # a RoBERTa with random weights from
    export.transformers.folder import write_tokenizer    # SentencePiece model, dict.txt -> tokenizer files

Only these modules import Transformers, so that `--help` is fast.
"""
