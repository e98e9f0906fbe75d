"""A dictionary for a text: the most frequent subword tokens of a SentencePiece model, or of a new one.

--vocabulary-size counts every vocabulary entry of the model: 4 special symbols of fairseq (<s> <pad> </s>
<unk>), the subword tokens, and the <mask> that masked-LM training adds. So 32000 writes 31,995 tokens to
dict.txt.
"""

from __future__ import annotations

import io
import multiprocessing
import random
import signal
from collections.abc import Iterable, Sequence
from itertools import chain
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray
from tqdm import tqdm

from roberta_small.common.errors import UserError
from roberta_small.preprocess.dictionary import MASK, SPECIALS, Dictionary
from roberta_small.preprocess.readers.lines import Block, read_text_lines
from roberta_small.preprocess.tokenization.encoder import all_tokens, map_text, parse_model

SIZE = "--vocabulary-size"
OUTSIDE_FILE = len(SPECIALS) + 1  # entries that SIZE counts and dict.txt does not list


def build_vocabulary(
    model: sentencepiece.SentencePieceProcessor,
    texts: Sequence[str],
    size: int | None,
    *,
    normalize_apostrophes: bool = False,
    workers: int = 1,
) -> Dictionary:
    """The `size - 5` most frequent tokens of the model in the text, in the model's order, with their counts.

    All tokens that a dict.txt can list if `size` is None. Ties go to the lower id. Where fewer tokens occur
    than requested, the rest are those of the lowest ids (in a unigram model the likeliest) with count 0.
    Raises `UserError` where the model has too few, and where there is no text.
    """
    tokens = all_tokens(model)
    special = {
        i for i in range(len(tokens)) if model.is_unknown(i) or model.is_control(i) or model.is_unused(i)
    }
    names = {*SPECIALS, MASK}
    # fairseq must read a token back as written.
    fitting = [i not in special and t not in names and t.split() == [t] for i, t in enumerate(tokens)]
    ids = np.flatnonzero(fitting)
    wanted = len(ids) if size is None else listed_tokens(size)
    if wanted > len(ids):
        raise UserError(
            f"{SIZE} {size}: the SentencePiece model has {len(ids):,} tokens; "
            f"use {len(ids) + OUTSIDE_FILE} at most"
        )

    def count(block: Block) -> NDArray[np.int64]:
        rows = model.encode(block.lines(normalize_apostrophes=normalize_apostrophes), return_type="numpy")
        return np.bincount(np.concatenate(rows), minlength=len(model))

    counts = np.zeros(len(model), dtype=np.int64)
    for of_block in map_text(count, texts, workers=workers, progress="count tokens"):
        counts += of_block
    if not counts.any():
        raise UserError(f"{texts[0]}: no text; specify files with text")
    most_frequent = ids[np.argsort(-counts[ids], kind="stable")[:wanted]]
    dictionary = Dictionary()
    for i in np.sort(most_frequent):
        dictionary.append(tokens[i], int(counts[i]))
    return dictionary


def listed_tokens(size: int) -> int:
    """How many tokens dict.txt lists for a model of `size` vocabulary entries."""
    if size <= OUTSIDE_FILE:
        raise UserError(f"{SIZE} {size}: must be larger than {OUTSIDE_FILE}, the number of special symbols")
    return size - OUTSIDE_FILE


MODEL_SPECIALS = 3  # <unk> <s> </s>, which SentencePiece counts as tokens

MOST_LINES = 1_000_000  # a corpus of more is sampled

# Fixed, so that the same text and size always give the same model.
SEED = 1
SETTINGS: dict[str, Any] = {
    "character_coverage": 0.9999,
    "num_threads": 4,
    "input_sentence_size": 0,  # no sampling by SentencePiece, whose random seed cannot be relied on
    "max_sentence_length": 65_536,  # bytes; SentencePiece's own 4,192 would skip long reviews
    "minloglevel": 2,
}


def train_model(
    texts: Sequence[str], tokens: int, *, at_most: bool = False, normalize_apostrophes: bool = False
) -> bytes:
    """Train a unigram SentencePiece model of `tokens` subword tokens; returns the content of its file.

    Unigram language model of Kudo 2018 (https://aclanthology.org/P18-1007), by the sentencepiece library.
    `at_most`: text with too few different words for so many tokens gives fewer. A unigram model of it would
    have little more than the characters, so that the tokens are those of byte-pair encoding (Sennrich et al.
    2016, https://aclanthology.org/P16-1162), which keeps its words. Raises `UserError` for unreadable text,
    or too little of it.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    arguments = (sender, list(texts), tokens, at_most, normalize_apostrophes)
    process = context.Process(target=_train, args=arguments, daemon=True)
    process.start()
    sender.close()
    try:
        with tqdm(desc="train tokenizer", bar_format="{desc}: {elapsed}", leave=False, disable=None) as clock:
            while not receiver.poll(timeout=1):
                clock.refresh()
        outcome = receiver.recv()
    except EOFError:
        raise UserError(
            f"{texts[0]}: SentencePiece's trainer was killed, probably out of memory; use less text"
        ) from None
    finally:
        process.kill()
        process.join()
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def sample(lines: Iterable[str], size: int) -> list[str]:
    """`size` lines, each with equal chance, the same each time (algorithm R, https://doi.org/10.1145/3147.3165)."""
    generator = random.Random(SEED)
    sampled: list[str] = []
    for number, line in enumerate(lines):
        if number < size:
            sampled.append(line)
        elif (place := generator.randrange(number + 1)) < size:
            sampled[place] = line
    return sampled


def _train(
    sender: Connection, texts: list[str], tokens: int, at_most: bool, normalize_apostrophes: bool
) -> None:
    """In the new process: send the model's content, or the error that prevented it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C
    try:
        files = (read_text_lines(path, normalize_apostrophes=normalize_apostrophes) for path in texts)
        sampled, size = sample(chain.from_iterable(files), MOST_LINES), tokens + MODEL_SPECIALS
        content = _trained(sampled, "unigram", size, at_most=at_most)
        if at_most and len(parse_model(content, texts[0])) < size:
            content = _trained(sampled, "bpe", size, at_most=at_most)
        sender.send(content)
    except RuntimeError as error:
        reason = f"SentencePiece cannot train {tokens:,} tokens on this text ({error})"
        sender.send(UserError(f"{texts[0]}: {reason}; use more text or a smaller {SIZE}"))
    except (UserError, OSError) as error:
        sender.send(error)


def _trained(lines: Sequence[str], kind: str, size: int, *, at_most: bool) -> bytes:
    """The content of a model of `size` entries, or `at_most` so many, of the kind "unigram" or "bpe"."""
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=writer,
        model_type=kind,
        vocab_size=size,
        hard_vocab_limit=not at_most,
        **SETTINGS,
    )
    return writer.getvalue()
