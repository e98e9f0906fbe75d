"""Write a trained model in another format: Transformers, fairseq, ONNX or fp16 safetensors.

In Python:

    from roberta_small.export.transformers.to_transformers import convert  # run -> from_pretrained folder
    from roberta_small.export.transformers.to_fairseq import convert_back  # such a folder -> checkpoint
    from roberta_small.export.transformers.networks import converted  # checkpoint in memory -> model
    from roberta_small.export.transformers.networks import random_classifier  # a RoBERTa with random weights
    from roberta_small.export.transformers.folder import write_tokenizer  # SentencePiece -> tokenizer files

Only these modules import Transformers, so that `--help` is fast.
"""
