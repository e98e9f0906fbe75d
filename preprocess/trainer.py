"""Trains a SentencePiece model of one's own: reproducible, and Ctrl-C stops it at once.

The training runs in a process of its own, because SentencePiece's trainer answers no signal for minutes.
"""

from __future__ import annotations

import io
import multiprocessing
import random
import signal
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Connection

import sentencepiece
from tqdm import tqdm

from common.errors import UserError

from .text import read_text_lines

MODEL_SPECIALS = 3  # <unk> <s> </s>, which SentencePiece counts as pieces

MOST_LINES = 1_000_000  # a corpus of more is sampled

# Fixed, so that the same text and size always give the same model.
SEED = 1
SETTINGS = {
    "model_type": "unigram",
    "character_coverage": 0.9999,
    "num_threads": 4,
    "input_sentence_size": 0,  # no sampling by SentencePiece, whose random seed cannot be relied on
    "max_sentence_length": 65_536,  # bytes; SentencePiece's own 4,192 would skip long reviews
    "minloglevel": 2,
}


def train_model(texts: Sequence[str], pieces: int, *, normalize_apostrophes: bool = False) -> bytes:
    """Train a unigram SentencePiece model of so many pieces; returns the content of its file.

    Unigram language model of Kudo 2018 (https://aclanthology.org/P18-1007), by the sentencepiece library.
    Raises `UserError` for unreadable text, or too little of it.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    arguments = (sender, list(texts), pieces, normalize_apostrophes)
    process = context.Process(target=_train, args=arguments, daemon=True)
    process.start()
    sender.close()
    try:
        with tqdm(desc="train pieces", bar_format="{desc}: {elapsed}", leave=False, disable=None) as clock:
            while not receiver.poll(timeout=1):
                clock.refresh()
        outcome = receiver.recv()
    except EOFError:
        raise UserError(
            f"{texts[0]}: SentencePiece's trainer was killed, likely for want of memory; give less text"
        ) from None
    finally:
        process.kill()
        process.join()
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def sample(lines: Iterable[str], size: int) -> list[str]:
    """`size` lines, each with equal chance, or all where there are fewer; the same ones each time.

    Algorithm R of Vitter 1985 (https://doi.org/10.1145/3147.3165).
    """
    generator = random.Random(SEED)
    sampled: list[str] = []
    for number, line in enumerate(lines):
        if number < size:
            sampled.append(line)
        elif (place := generator.randrange(number + 1)) < size:
            sampled[place] = line
    return sampled


def _train(sender: Connection, texts: list[str], pieces: int, normalize_apostrophes: bool) -> None:
    """In the new process: send the model's content, or the error that prevented it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C
    writer = io.BytesIO()
    try:
        lines = (
            line
            for path in texts
            for line in read_text_lines(path, normalize_apostrophes=normalize_apostrophes)
        )
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sample(lines, MOST_LINES)),
            model_writer=writer,
            vocab_size=pieces + MODEL_SPECIALS,
            **SETTINGS,
        )
        sender.send(writer.getvalue())
    except RuntimeError as error:
        reason = f"SentencePiece cannot train {pieces:,} pieces on this text ({error})"
        sender.send(UserError(f"{texts[0]}: {reason}; give more text or a smaller --size"))
    except (UserError, OSError) as error:
        sender.send(error)
