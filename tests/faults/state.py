"""The state of a trainer in a file that outlives it: its phase, whether it writes an event, its update."""

import mmap
import struct
from contextlib import contextmanager
from pathlib import Path

PHASES = ("sweep", "start", "train", "validate", "save", "copy", "saved", "end")
LAYOUT = struct.Struct("<BBHH")


class State:
    """The file, mapped into memory, so that it keeps its content when the process is killed."""

    def __init__(self, path):
        with open(path, "r+b") as stream:
            self.memory = mmap.mmap(stream.fileno(), LAYOUT.size)

    @classmethod
    def new(cls, path):
        """Before the sweep starts."""
        Path(path).write_bytes(bytes(LAYOUT.size))
        return cls(path)

    def enter(self, phase):
        self.memory[0] = PHASES.index(phase)

    @contextmanager
    def phase(self, name):
        before = self.memory[0]
        self.enter(name)
        try:
            yield
        finally:
            self.memory[0] = before

    @contextmanager
    def logging(self):
        """A byte of its own, because another thread writes the events."""
        self.memory[1] = 1
        try:
            yield
        finally:
            self.memory[1] = 0

    def reach(self, seed, update):
        self.memory[2:] = struct.pack("<HH", seed, update)

    def read(self):
        """The phase, and which update of which run; an event that is being written is a phase as well."""
        phase, logging, *place = LAYOUT.unpack(self.memory[:])
        return "log" if logging else PHASES[phase], tuple(place)
