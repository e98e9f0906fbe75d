"""Errors that the user can correct: a clear message and an exit code instead of a traceback."""

from __future__ import annotations

import codecs
import errno
import functools
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from types import TracebackType

OUT_OF_MEMORY = re.compile(r"OutOfMemoryError: |CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED")
"""Errors of torch if the memory of a GPU does not suffice; this package does not import torch."""
UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)
"""Numbers of the errors of files and folders that this user cannot write."""
SURROUNDINGS = {
    "No usable temporary directory": "no folder for temporary files can be written; set TMPDIR to one",
    "Could not determine home directory": "no home directory for the cache; set RS_CACHE to a folder",
    "Matplotlib requires access": "Matplotlib has no folder for its cache; set MPLCONFIGDIR to one",
}
"""Part of the message of an error, of Python or Matplotlib -> what it means and which variable to set."""
ESCAPES = "roberta-small-escapes"
"""Name of the error handler `_escape`."""
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
        return f"error: {shown_text(str(error.filename))}: {error.strerror}{_variable(error)}"
    return next((f"error: {fault}" for sign, fault in SURROUNDINGS.items() if sign in str(error)), None)


def _variable(error: OSError) -> str:
    """The environment variable to set if a folder of a cache cannot be written."""
    home = os.path.expanduser("~/.cache")
    folders = {"RS_CACHE": f"{home}/fairseq-roberta-small", "HF_HOME": f"{home}/huggingface"}
    path = os.path.abspath(os.fsdecode(error.filename)) if error.errno in UNWRITABLE else "/"
    near = [(name, os.path.abspath(os.environ.get(name) or folder)) for name, folder in folders.items()]
    found = [name for name, folder in near if os.path.commonpath([path, folder]) in (path, folder)]
    return f"; set {' or '.join(found)} to a folder that can be written" if found and path != "/" else ""


def exit_code(error: BaseException) -> int:
    """130 after Ctrl-C (as shells do), 2 for an invalid command line, 1 for every other error."""
    if isinstance(error, UsageError):
        return 2
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def report_errors(main: Callable[..., int | None]) -> Callable[..., int]:
    """Decorate the `main` of a command: errors become a message and an exit code; bugs are raised."""

    @functools.wraps(main)
    def wrapped(*args: object, **kwargs: object) -> int:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors=ESCAPES)
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


@functools.cache
def _report_encoding(encoding: str) -> None:
    if encoding != "utf-8":  # otherwise a lone surrogate, of a file name
        what = f"the encoding {encoding} lacks characters of this output, which are written as \\u..."
        print(f"warning: {what}; set PYTHONIOENCODING=utf-8", file=sys.stderr)


def _escape(error: UnicodeError) -> tuple[str, int]:
    """An error handler of `codecs`: characters that an encoding lacks, as in JSON."""
    assert isinstance(error, UnicodeEncodeError)
    _report_encoding(error.encoding)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error(ESCAPES, _escape)


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
