"""The task `sentence_classification`: classify sentences or pairs of sentences.

It reads the data folders that `roberta-small prepare` and `fairseq-preprocess` write:

    DATA/input0/{dict.txt, train.bin, train.idx, valid.bin, ...}
    DATA/input1/...          optional, the second sentence of a pair
    DATA/label/{dict.txt, train.bin, ...}
    DATA/label/train.label   with --regression-target, instead: one number a line
    DATA/label/train.soft.npy   optional, class probabilities as targets of training

With --multi-label, a sentence has any number of labels. The kind of labels must be that of preprocess.json.

Training batches are identical to those of stock `sentence_prediction`, except for soft labels. Other
splits are sorted by length, so that batches (--max-tokens-valid) have little padding.
"""

import contextlib
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

import numpy as np
import torch
from fairseq import models
from fairseq.data import (
    ConcatSentencesDataset,
    Dictionary,
    FairseqDataset,
    MaskTokensDataset,
    OffsetTokensDataset,
    PrependTokenDataset,
    SortDataset,
    StripTokenDataset,
    data_utils,
)
from fairseq.data.iterators import EpochBatchIterator
from fairseq.data.shorten_dataset import maybe_shorten_dataset
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask, register_task
from omegaconf import II, MISSING, OmegaConf, open_dict

from roberta_small.common.data_folder import REPORT, WRITE_AGAIN, dictionary_digest, read_report
from roberta_small.common.errors import UserError, enumerate_some
from roberta_small.common.label_kinds import (
    KINDS,
    MULTI_LABEL,
    REGRESSION,
    SCALING,
    SINGLE_LABEL,
    LabelKind,
    Labels,
    Scaling,
    kind_of_report,
)
from roberta_small.fairseq_plugin.tasks.datasets import (
    KeepEosDataset,
    ShortenedPairsDataset,
    TargetRows,
    check_labels,
    check_lengths,
    check_same_length,
    examples_of,
    load_label_sets,
    load_numbers,
    load_soft_labels,
    load_split,
)
from roberta_small.preprocess.dictionary import NO_SEPARATOR, PADDING_PREFIX

logger = logging.getLogger(__name__)


@dataclass
class SentenceClassificationConfig(FairseqDataclass):
    """Flags of the task: those of `sentence_prediction`, and four more."""

    data: str = field(default=MISSING, metadata={"help": "path to data directory"})
    num_classes: int = field(
        default=-1, metadata={"help": "number of classes (default: the labels in DATA/label/dict.txt)"}
    )
    regression_target: bool = field(
        default=False, metadata={"help": "numeric labels: DATA/label/SPLIT.label has one number a line"}
    )
    multi_label: bool = field(default=False, metadata={"help": "a sentence has any number of labels"})
    init_token: Optional[int] = field(
        default=None, metadata={"help": "id of the token prepended to each text (<s> is 0)"}
    )
    separator_token: Optional[int] = field(
        default=None,
        metadata={
            "help": "id of the token between the two texts of a pair (</s> is 2; -1 for none, as BERT)"
        },
    )
    no_shuffle: bool = field(default=False, metadata={"help": "keep the order of the files"})
    shorten_method: ChoiceEnum(["none", "truncate", "random_crop"]) = field(  # type: ignore[valid-type]  # fairseq's way
        default="none", metadata={"help": "if not none, shorten sequences that exceed --max-positions"}
    )
    shorten_data_split_list: str = field(
        default="", metadata={"help": 'splits to apply shortening to, e.g. "train,valid" (default: all)'}
    )
    keep_eos: bool = field(
        default=False,
        metadata={
            "help": "end truncated sentences in --separator-token (default: </s>), as complete sentences do "
            "(stock fairseq cuts it off)"
        },
    )
    word_dropout: float = field(
        default=0.0,
        metadata={"help": "fraction of training tokens replaced by <mask>, drawn anew in each epoch"},
    )
    max_positions: int = field(default=256, metadata={"help": "max tokens per example"})
    # Also a flag of the criterion, which gets the same value. A reference to the criterion's
    # (II("criterion...")) would not resolve in commands that have another one: fairseq-validate.
    classification_head_name: str = field(
        default="sentence_classification_head", metadata={"help": "name of the classification head to use"}
    )
    seed: int = II("common.seed")
    train_subset: str = II("dataset.train_subset")


@register_task("sentence_classification", dataclass=SentenceClassificationConfig)
class SentenceClassificationTask(FairseqTask):
    """Sentence classification.

    Attributes:
        dictionary: that of the text, with `<mask>`.
        label_dictionary: that of the class names.
        scaling: that of numeric labels.
    """

    pads_right = True

    def __init__(
        self,
        cfg: SentenceClassificationConfig,
        dictionary: Dictionary,
        labels: Dictionary,
        scaling: Scaling | None = None,
    ) -> None:
        super().__init__(cfg)
        self.dictionary = dictionary
        self.label_dictionary = labels
        self.scaling = scaling or Scaling()

    @classmethod
    def setup_task(cls, cfg: SentenceClassificationConfig, **kwargs: Any) -> "SentenceClassificationTask":
        """Load both dictionaries and determine the number of classes."""
        if not 0.0 <= cfg.word_dropout < 1.0:
            raise UserError(f"--word-dropout {cfg.word_dropout}: must be at least 0 and below 1")
        data = Path(cfg.data)
        dictionary = load_dictionary(data / "input0" / "dict.txt")
        dictionary.add_symbol("<mask>")
        tokens = {"--init-token": cfg.init_token, "--separator-token": separator_of(cfg.separator_token)}
        for flag, token in tokens.items():
            if token is not None and not 0 <= token < len(dictionary):
                last = len(dictionary) - 1
                raise UserError(f"{flag} {token}: not an id of the dictionary, which are 0 to {last}")
        kind, scaling = kind_and_scaling(cfg)
        if not kind.has_classes:
            if cfg.num_classes not in (-1, 1):
                raise UserError(
                    f"--num-classes {cfg.num_classes}: a regression has one output; omit the flag"
                )
            cfg.num_classes = 1
            what = f"numeric labels, mean {scaling.mean:.6g}, scale {scaling.scale:.6g}"
            logger.info("dictionary: %d entries; %s", len(dictionary), what)
            return cls(cfg, dictionary, Dictionary(), scaling)
        labels = load_dictionary(data / "label" / "dict.txt")
        names = class_names(labels)
        if cfg.num_classes < 0:
            cfg.num_classes = len(names)
        if cfg.num_classes < len(names):
            raise UserError(
                f"--num-classes is {cfg.num_classes}, but {data / 'label' / 'dict.txt'} contains "
                f"{len(names)} labels: {', '.join(names[:10])}; omit the flag"
            )
        shown = enumerate_some(names, 20)
        logger.info("dictionary: %d entries; %d classes: %s", len(dictionary), len(names), shown)
        return cls(cfg, dictionary, labels)

    @property
    def class_names(self) -> list[str]:
        """The names of the classes, in the order of the logits."""
        return class_names(self.label_dictionary)

    @property
    def labels(self) -> Labels:
        """What the logits mean; --num-classes may exceed the number of labels."""
        kind, names = requested_kind(self.cfg), self.class_names
        if not kind.has_classes:
            return Labels(kind, scaling=self.scaling)
        return Labels(kind, (*names, *(f"unnamed{k}" for k in range(len(names), self.cfg.num_classes))))

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> FairseqDataset:
        """Load a split; raises `UserError` if it is missing or malformed, or if its parts do not fit."""
        text = self._load_text(split, combine)
        target = self._load_target(split, combine)
        check_same_length(self.cfg.data, split, {"input0": text, "label": target})

        tokens = self._shorten(text, split)
        check_lengths(self.cfg.data, split, tokens, self.cfg.max_positions)
        trained = split in self.cfg.train_subset.split(",")
        classes = len(self.class_names), self.cfg.num_classes
        soft = load_soft_labels(self.cfg.data, split, len(text), *classes) if trained else None
        targets = {"target": target} if soft is None else {"target": target, "soft_target": soft}
        dataset: FairseqDataset = examples_of(tokens, self.source_dictionary.pad(), targets)
        if not self.cfg.no_shuffle:
            with data_utils.numpy_seed(self.cfg.seed):
                shuffled = np.random.permutation(len(tokens))  # as in stock fairseq
            dataset = SortDataset(dataset, sort_order=[shuffled if trained else tokens.sizes])
        logger.info("loaded %s: %d sentences", split, len(dataset))
        self.datasets[split] = dataset
        return dataset

    def _load_target(self, split: str, combine: bool) -> FairseqDataset:
        """The targets as in `objectives`: class, classes, or standardized number."""
        data, dictionary, kind = self.cfg.data, self.label_dictionary, requested_kind(self.cfg)
        if not kind.has_classes:
            return TargetRows((load_numbers(data, split) - self.scaling.mean) / self.scaling.scale)
        labels = load_split(data, "label", split, dictionary, combine)
        if not kind.exclusive:
            names, classes = self.class_names, self.cfg.num_classes
            return TargetRows(load_label_sets(data, split, labels, dictionary, names, classes))
        check_labels(data, split, labels, dictionary, self.class_names)
        target = StripTokenDataset(labels, id_to_strip=dictionary.eos())
        return OffsetTokensDataset(target, offset=-dictionary.nspecial)

    def training_examples(self) -> list[tuple[torch.Tensor, Any]]:
        """Token ids (L,), int64, and target of each training example, without word dropout.

        The target is the class; for other kinds of labels a tensor as in `objectives`, (K,) or ().
        """
        examples: list[tuple[torch.Tensor, Any]] = []
        for split in self.cfg.train_subset.split(","):
            tokens = self._shorten(self._load_text(split, combine=True, dropout=False), split)
            target, exclusive = self._load_target(split, combine=True), requested_kind(self.cfg).exclusive
            targets = (int(target[i]) if exclusive else target[i] for i in range(len(target)))
            examples += zip((tokens[i] for i in range(len(tokens))), targets, strict=True)
        return examples

    def get_batch_iterator(self, *args: Any, **kwargs: Any) -> EpochBatchIterator:
        """Batches of all sentences; fairseq would drop the last ones if their number is no multiple of 8."""
        return super().get_batch_iterator(*args, **{**kwargs, "required_batch_size_multiple": 1})

    def _load_text(self, split: str, combine: bool, *, dropout: bool = True) -> FairseqDataset:
        """The sentences, or pairs of sentences, with initial and separator tokens."""
        first = self._load_tokens("input0", split, combine, dropout)
        if self.cfg.init_token is not None:
            first = PrependTokenDataset(first, self.cfg.init_token)
        if not (Path(self.cfg.data) / "input1").is_dir():
            return first
        second = self._load_tokens("input1", split, combine, dropout)
        check_same_length(self.cfg.data, split, {"input0": first, "input1": second})
        if (separator := separator_of(self.cfg.separator_token)) is not None:
            second = PrependTokenDataset(second, separator)
        return ConcatSentencesDataset(first, second)

    def _load_tokens(self, key: str, split: str, combine: bool, dropout: bool) -> FairseqDataset:
        """Tokens of `input0` or `input1`; `dropout` is whether training has word dropout.

        Word dropout is that of Iyyer et al. (2015, section 3.2).
        """
        dictionary, cfg = self.source_dictionary, self.cfg
        tokens = load_split(cfg.data, key, split, dictionary, combine)
        if not (dropout and cfg.word_dropout) or split not in cfg.train_subset.split(","):
            return tokens
        return MaskTokensDataset(
            tokens,
            dictionary,
            pad_idx=dictionary.pad(),
            mask_idx=dictionary.index("<mask>"),
            seed=cfg.seed,
            mask_prob=cfg.word_dropout,
            leave_unmasked_prob=0.0,
            random_token_prob=0.0,
        )

    def _shorten(self, tokens: FairseqDataset, split: str) -> FairseqDataset:
        """Shorten sentences to --max-positions; with --keep-eos they still end in `</s>`, pairs always do.

        Tokenizers of other libraries give `</s>` another id (CamemBERT: 6), which is their separator too.
        """
        cfg = self.cfg
        splits = cfg.shorten_data_split_list.split(",") if cfg.shorten_data_split_list else [split]
        truncates = str(cfg.shorten_method) == "truncate" and split in splits
        if isinstance(tokens, ConcatSentencesDataset) and truncates:
            starts = (int(cfg.init_token is not None), int(separator_of(cfg.separator_token) is not None))
            first, second = tokens.datasets
            return ShortenedPairsDataset(first, second, starts, cfg.max_positions)
        arguments = (split, cfg.shorten_data_split_list, cfg.shorten_method, cfg.max_positions, cfg.seed)
        shortened = maybe_shorten_dataset(tokens, *arguments)
        if cfg.keep_eos and shortened is not tokens:
            separator = separator_of(cfg.separator_token)
            eos = self.source_dictionary.eos() if separator is None else separator
            return KeepEosDataset(shortened, tokens, eos)
        return shortened

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> BaseFairseqModel:
        """Build the model with the task's --max-positions and a new classification head."""
        with open_dict(cfg) if OmegaConf.is_config(cfg) else contextlib.nullcontext():
            cfg.max_positions = self.cfg.max_positions
        model = models.build_model(cfg, self, from_checkpoint)
        model.register_classification_head(
            self.cfg.classification_head_name, num_classes=self.cfg.num_classes
        )
        return model

    def get_checkpoint_dict(self) -> dict[str, Any]:
        """The state of the task in a checkpoint's `extra_state`: checksum, meaning of logits."""
        digest = dictionary_digest(self.source_dictionary.symbols)
        state: dict[str, Any] = {"dictionary_sha256": digest, "class_names": self.class_names}
        if not requested_kind(self.cfg).has_classes:
            state[SCALING] = self.scaling.record()
        return {type(self).__name__: state}

    def set_checkpoint_dict(self, state: dict[str, Any]) -> None:
        """Raise `UserError` if the run resumes with another dictionary or other labels."""
        ours = self.get_checkpoint_dict()[type(self).__name__]
        keys = {"dictionary_sha256": "dictionary", "class_names": "labels", SCALING: "scaling of the labels"}
        for key, what in keys.items():
            if state.get(key) != ours.get(key):
                raise UserError(
                    f"{self.cfg.data}: the {what} changed since the start of the run; use another --save-dir"
                )

    def max_positions(self) -> int:
        """Maximum number of tokens of an example."""
        return self.cfg.max_positions

    source_dictionary = target_dictionary = property(lambda self: self.dictionary)
    """The dictionary of the text, with `<mask>`; fairseq requires both."""


def requested_kind(cfg: SentenceClassificationConfig) -> LabelKind:
    """The kind of labels that the flags choose; raises `UserError` if they choose two."""
    if cfg.regression_target and cfg.multi_label:
        raise UserError("--regression-target and --multi-label: choose one of them")
    return KINDS[REGRESSION if cfg.regression_target else MULTI_LABEL if cfg.multi_label else SINGLE_LABEL]


def kind_and_scaling(cfg: SentenceClassificationConfig) -> tuple[LabelKind, Scaling]:
    """The kind of labels of the flags, and the scaling of numeric labels.

    Raises `UserError` if the report of the data folder records another kind. A folder without report, as
    fairseq-preprocess writes it, has the kind of the flags, and its numbers are not scaled.
    """
    kind, report, path = requested_kind(cfg), read_report(Path(cfg.data)), Path(cfg.data) / REPORT
    if report and (recorded := kind_of_report(report, path)) is not kind:
        change = f"add {recorded.flags[0]}" if recorded.flags else f"omit {kind.flags[0]}"
        raise UserError(f"{path}: the labels are of the kind {recorded.name}, not {kind.name}; {change}")
    record = report.get(SCALING)
    return kind, Scaling() if record is None else Scaling.from_record(record, path)


def separator_of(option: int | None) -> int | None:
    """The token that --separator-token puts before the second text of a pair; None for none."""
    return None if option == NO_SEPARATOR else option


def load_dictionary(path: Path) -> Dictionary:
    """Read a `dict.txt`; raises `UserError` if it is missing or malformed."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; {WRITE_AGAIN}")
    try:
        with open(path, encoding="utf-8") as stream:
            return Dictionary.load(stream)
    except (ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: not a fairseq dictionary ({reason}); write it again") from None


def class_names(labels: Dictionary) -> list[str]:
    """The labels, without special symbols and padding entries."""
    return [symbol for symbol in labels.symbols[labels.nspecial :] if not symbol.startswith(PADDING_PREFIX)]
