"""Tiny Transformers tokenizers, with the special ids of the real ones."""

import csv
import json
import random

import sentencepiece
from tokenizers import BertWordPieceTokenizer, ByteLevelBPETokenizer, CharBPETokenizer
from transformers import AutoTokenizer

WORDS = ["le", "la", "un", "une", "livre", "film", "roman", "est", "n'est", "pas", "très", "peu", "bon"]
WORDS += ["mauvais", "été", "déçu", "captivant", "ennuyeux", "l'auteur"]


def lines(count=300, seed=1):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(3, 9))) for _ in range(count)]


def write_csv(path, classes, pairs=False):
    """Sixty texts, or pairs of texts, with labels; one text is long."""
    texts = [f"{text} {i}" for i, text in enumerate(lines(60))]
    texts[5] = "livre " * 60
    rows = [(*([text] * (1 + pairs)), classes[i % len(classes)]) for i, text in enumerate(texts)]
    header = ("text", "text2", "label") if pairs else ("text", "label")
    with open(path, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *rows])


def roberta(folder, *, fast=True):
    """Byte-level BPE: ids 0 to 3 are <s> <pad> </s> <unk>, <mask> is the last one."""
    model = ByteLevelBPETokenizer()
    model.train_from_iterator(lines(), vocab_size=320, special_tokens=["<s>", "<pad>", "</s>", "<unk>"])
    folder.mkdir(parents=True)
    model.save_model(str(folder))
    vocabulary = json.loads((folder / "vocab.json").read_text())
    (folder / "vocab.json").write_text(json.dumps(vocabulary | {"<mask>": len(vocabulary)}))
    return _finished(folder, "RobertaTokenizer", fast)


def xlm_roberta(folder, *, fast=True):
    """SentencePiece, whose ids are shifted by one behind fairseq's special tokens."""
    return _sentencepiece(folder, "XLMRobertaTokenizer", fast)


def camembert(folder, *, fast=True):
    """SentencePiece behind four ids, of which <s> and </s> are not the ones used."""
    return _sentencepiece(folder, "CamembertTokenizer", fast)


def bert(folder, *, fast=True):
    """WordPiece in lower case; [PAD] is 0, [UNK], [CLS], [SEP] and [MASK] are 3, 5, 7 and 9."""
    model = BertWordPieceTokenizer(lowercase=True)
    model.train_from_iterator(lines(), vocab_size=120, min_frequency=1, special_tokens=[])
    folder.mkdir(parents=True)
    words = [word for word, _ in sorted(model.get_vocab().items(), key=lambda item: item[1])]
    for index, token in ((0, "[PAD]"), (3, "[UNK]"), (5, "[CLS]"), (7, "[SEP]"), (9, "[MASK]")):
        words.insert(index, token)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return _finished(folder, "BertTokenizer", fast)


def flaubert(folder, *, fast=True):
    """BPE of Moses' words; ids 0 to 3 are <s> </s> <pad> <unk>, and <special1>, the mask token, is 5.

    Transformers has no fast tokenizer of this class, so that `fast` changes nothing.
    """
    model = CharBPETokenizer()
    model.train_from_iterator(lines(), vocab_size=140, special_tokens=[])
    folder.mkdir(parents=True)
    model.save_model(str(folder))
    words = [word for word, _ in sorted(model.get_vocab().items(), key=lambda item: item[1])]
    special = ["<s>", "</s>", "<pad>", "<unk>", *(f"<special{i}>" for i in range(10))]
    content = {token: i for i, token in enumerate([*special, *words])}
    (folder / "vocab.json").write_text(json.dumps(content))
    # FlaubertTokenizer has no version in the first line, which it would read as a merge.
    merges = (folder / "merges.txt").read_text().splitlines(keepends=True)[1:]
    (folder / "merges.txt").write_text("".join(merges))
    return _finished(folder, "FlaubertTokenizer", fast)


FAMILIES = {"roberta": roberta, "xlm-roberta": xlm_roberta, "camembert": camembert}
"""Of tokenizers with the ids of fairseq's dictionaries."""


def _sentencepiece(folder, tokenizer_class, fast):
    folder.mkdir(parents=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines()),
        model_prefix=str(folder / "sentencepiece.bpe"),
        vocab_size=45,
        minloglevel=2,
    )
    (folder / "sentencepiece.bpe.vocab").unlink()
    return _finished(folder, tokenizer_class, fast)


def _finished(folder, tokenizer_class, fast):
    """Add the configuration; `fast` also writes tokenizer.json, as newer folders have it."""
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": tokenizer_class}))
    if fast:
        AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    return folder
