"""Tokenizers of fairseq checkpoints without SentencePiece, made from their dictionary.

They are written as Transformers tokenizers, so that everything that reads text works with them:

    bpe         GPT-2's byte-level BPE (encoder.json, vocab.bpe) with a dict.txt of its numbers, as fairseq's
                roberta.base and roberta.large have it
    words       text that is tokenized already: tokens separated by white space
    characters  one character a token, white space ignored, as for sequences of amino acids

A pair is `<s> A </s> </s> B </s>`. A dictionary need not list `<mask>`, which fairseq adds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roberta_small.common.errors import UserError
from roberta_small.common.files import read_lines, read_object
from roberta_small.preprocess import dictionary as fairseq_dictionary
from roberta_small.preprocess.dictionary import MASK, PADDING_PREFIX, SPECIALS, Dictionary

BPE, WORDS, CHARACTERS = "bpe", "words", "characters"
ENCODER, MERGES = "encoder.json", "vocab.bpe"
"""GPT-2's files."""
SPECIAL_TOKENS = ("<|endoftext|>",)
"""Tokens of GPT-2 that text does not contain."""
SYMBOLS = "fairseq_dict.txt"
"""The file of a tokenizer's folder with the symbols of its ids, where they are not the tokens themselves."""


def write_tokenizer(kind: str, dictionary: Path, folder: Path) -> None:
    """Write the tokenizer of a dictionary into a folder; for `bpe`, GPT-2's files are beside it."""
    from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    words = fairseq_dictionary.load(str(dictionary)).with_mask()
    if kind == BPE:
        made = _byte_level(words, dictionary)
    else:
        vocabulary = {words.symbols[index]: index for index in range(len(words))}
        for index, symbol in enumerate(words.symbols):
            if vocabulary[symbol] != index:  # another entry of the same name is the one that fairseq finds
                vocabulary[f"{PADDING_PREFIX}{index:04d}"] = index
        made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
        made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if kind == CHARACTERS:
        single = pre_tokenizers.Split(Regex("."), "isolated")
        made.pre_tokenizer = pre_tokenizers.Sequence([made.pre_tokenizer, single])
    made.post_processor = TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    made.add_special_tokens([AddedToken(token, special=True) for token in (*SPECIALS, MASK)])
    names = {"bos": "<s>", "cls": "<s>", "pad": "<pad>", "eos": "</s>", "sep": "</s>", "unk": "<unk>"}
    special = {f"{role}_token": token for role, token in (names | {"mask": MASK}).items()}
    PreTrainedTokenizerFast(tokenizer_object=made, **special).save_pretrained(folder)
    if kind == BPE:
        (folder / SYMBOLS).write_text(words.text(), encoding="utf-8")


def has_characters(dictionary: Path) -> bool:
    """Whether the symbols of a dictionary are single characters."""
    names = fairseq_dictionary.load(str(dictionary)).names()
    return all(len(name) == 1 or name == MASK or name.startswith(PADDING_PREFIX) for name in names)


def _byte_level(words: Dictionary, path: Path) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    encoder_path, merges_path = path.with_name(ENCODER), path.with_name(MERGES)
    numbers = read_object(encoder_path, "copy GPT-2's file again")
    merges = [
        line.partition(" ")[::2]
        for line in read_lines(merges_path)
        if line.strip() and not line.startswith("#version")
    ]
    tokens = {str(number): token for token, number in numbers.items()}
    names = [tokens.get(symbol, symbol) for symbol in words.symbols]
    vocabulary = {name: index for index, name in enumerate(names)}
    if missing := [token for token in numbers if token not in vocabulary and token not in SPECIAL_TOKENS]:
        raise UserError(
            f"{path}: {len(missing):,} of the {len(numbers):,} tokens of {encoder_path.name} are missing, "
            f"such as {numbers[missing[0]]}; use the dict.txt of the checkpoint"
        )
    try:
        made = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>"))
    except Exception as error:  # the library raises only this class
        raise UserError(f"{merges_path}: {error}; copy GPT-2's file again") from None
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return made
