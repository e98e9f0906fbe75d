"""Tiny trained fairseq runs to export, and reference implementations of their logits and token ids."""

import sentencepiece
import torch
from fairseq.data import Dictionary
from fairseq.models.roberta.model import RobertaModel

from roberta_small.preprocess.binarize import Split
from tests.support.binarized_files import binarize
from tests.support.tiny_runs import make_data, make_run
from tests.support.training import SIZES, STEPS, build_trainer, save

PAD = 1
HEAD = "sentence_classification_head"
MASKED_LM = ["--task", "masked_lm", "--criterion", "masked_lm", "--arch", "roberta_small"]
LENGTH = ["--max-positions", "32", "--tokens-per-sample", "32"]


def train_classifier(root, *flags, pairs=False, normalize_apostrophes=False):
    """(data, run) of a classifier after three updates."""
    data = make_data(root, pairs=pairs, normalize_apostrophes=normalize_apostrophes)
    make_run(data, root / "run", *flags, updates=3)
    return data, root / "run"


def make_masked_lm(root, *flags):
    """(data, checkpoint) of a masked language model, with the dictionary beside the checkpoint."""
    make_data(root)
    splits = [Split(name, {"": [str(root / f"{name}.input0")]}, None) for name in ("train", "valid")]
    binarize(
        splits,
        root / "corpus",
        sentencepiece_model=str(root / "spm.model"),
        dictionary=str(root / "dict.txt"),
    )
    arguments = [root / "corpus", *MASKED_LM, *LENGTH, *STEPS, *SIZES, "--optimizer", "adam"]
    _, trainer = build_trainer([*arguments, "--precision", "fp32", *flags])
    trainer.begin_epoch(1)
    for sample in trainer.get_train_iterator(epoch=1).next_epoch_itr():
        trainer.train_step([sample])
    (root / "pretrained").mkdir()
    save(trainer, root / "pretrained/model.pt")
    (root / "pretrained/dict.txt").write_bytes((root / "corpus/dict.txt").read_bytes())
    return root / "corpus", root / "pretrained/model.pt"


def stock_model(path, dictionary):
    """fairseq's own `RobertaModel`, without the plugin's encoder, with the weights of a checkpoint."""
    state = torch.load(path, weights_only=False)
    task = type("Task", (), {"source_dictionary": dictionary, "max_positions": lambda self: 32})()
    model = RobertaModel.build_model(state["cfg"]["model"], task)
    if any(key.startswith("classification_heads") for key in state["model"]):
        classes = len(state["model"][f"classification_heads.{HEAD}.out_proj.weight"])
        model.register_classification_head(HEAD, num_classes=classes)
    model.load_state_dict(state["model"])
    return model.eval()


def dictionary_of(path):
    dictionary = Dictionary.load(str(path))
    dictionary.add_symbol("<mask>")
    return dictionary


def padded_ids(vocabulary, lengths=(32, 5, 17, 2)):
    """Random ids (B, L) that start with <s>, padded on the right."""
    ids_BL = torch.full((len(lengths), max(lengths)), PAD)
    for row_L, length in zip(ids_BL, lengths, strict=True):
        row_L[:length] = torch.randint(3, vocabulary, (length,))
    ids_BL[:, 0] = 0
    return ids_BL


class SpmThenFairseq:
    """Reference tokenizer: token ids from SentencePiece and fairseq's dictionary only."""

    def __init__(self, spm_model, dictionary, *, longest, keep_eos=False):
        self.spm = sentencepiece.SentencePieceProcessor(model_file=str(spm_model))
        self.dictionary = dictionary_of(dictionary)
        self.longest, self.keep_eos = longest, keep_eos

    def __call__(self, *texts):
        parts = []
        for text in texts:
            line = " ".join(self.spm.encode(text, out_type=str))
            parts.append(self.dictionary.encode_line(line, add_if_not_exist=False, append_eos=False).tolist())
        if len(parts) == 2:
            sizes = list(map(len, parts))
            while sum(map(len, parts)) > self.longest - 4:  # one token after the other, of the longer text
                first = len(parts[0]) > len(parts[1]) or (
                    len(parts[0]) == len(parts[1]) and sizes[0] <= sizes[1]
                )
                parts[not first].pop()
            return [0, *parts[0], 2, 2, *parts[1], 2]
        row = [0, *parts[0], 2]
        cut = row[: self.longest]
        if self.keep_eos and len(row) > self.longest:
            cut[-1] = 2
        return cut
