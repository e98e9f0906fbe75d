"""Errors that the user can correct: a clear message and an exit code instead of a traceback."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Iterable
from types import TracebackType

OUT_OF_MEMORY = re.compile(r"OutOfMemoryError: |CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED")
"""Errors of torch if the memory of a GPU does not suffice; this package does not import torch."""
SHOWN_AS: dict[str, str] = {}
"""A temporary folder -> the path of the user whose content it has (`common.archive`)."""


def shown_text(text: str) -> str:
    """The text with the user's paths in place of temporary folders."""
    for folder, path in SHOWN_AS.items():
        text = text.replace(folder, path)
    return text


class UserError(Exception):
    """Invalid input; the message names the file, the place in it and the remedy, on one line."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class UsageError(UserError):
    """An invalid command line; the exit code is 2, as in argparse."""

    def __init__(self, message: str, usage: str = "") -> None:
        super().__init__(message)
        self.usage = usage


def message_of(error: BaseException) -> str | None:
    """The message for an error that the user can correct; None for a bug in this project."""
    if isinstance(error, UserError):
        return f"error: {shown_text(str(error))}"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if OUT_OF_MEMORY.search(f"{type(error).__name__}: {error}"):
        return "error: out of GPU memory; use fewer runs at a time or smaller batches, or --device cpu"
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"error: {shown_text(str(error.filename))}: {error.strerror}"
    return None


def exit_code(error: BaseException) -> int:
    """130 after Ctrl-C (as shells do), 2 for an invalid command line, 1 for every other error."""
    if isinstance(error, UsageError):
        return 2
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def report_errors(main: Callable[..., int | None]) -> Callable[..., int]:
    """Decorate the `main` of a command: errors become a message and an exit code; bugs are raised."""

    @functools.wraps(main)
    def wrapped(*args: object, **kwargs: object) -> int:
        try:
            return main(*args, **kwargs) or 0
        except BrokenPipeError:
            # The reader of the pipe has exited (`| head`); also suppress output at interpreter exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except (Exception, KeyboardInterrupt) as error:
            message = message_of(error)
            if message is None:
                raise
            print(getattr(error, "usage", "") + message, file=sys.stderr)
            return exit_code(error)

    return wrapped


def install_excepthook() -> None:
    """Report errors like `report_errors` in programs of others, such as fairseq-train with the plugin."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        message = message_of(error)
        if message is None:
            previous(kind, error, trace)
        else:
            print(message, file=sys.stderr)

    sys.excepthook = hook


def count(number: int, noun: str) -> str:
    """A number with its noun: `1 run`, `2 runs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def enumerate_some(names: Iterable[str], limit: int = 3) -> str:
    """The first `limit` names and the number of the others: `a, b, c and 2 more`."""
    names = list(names)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
