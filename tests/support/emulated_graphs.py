"""CUDA graphs, emulated: the operations of a context are recorded, and executed again on the same tensors."""

import contextlib
import itertools
from types import SimpleNamespace

import torch
from torch.utils._python_dispatch import TorchDispatchMode

POOLS = itertools.count(1)
GRAPHS = []
"""The graphs that were recorded."""


def new_stream():
    """A stream; all of them are the CPU."""
    return SimpleNamespace(wait_stream=lambda other: None)


STREAMS = [new_stream()]
"""The default stream first, the current one last."""
RECORDING = []
"""The recorder, while a graph is recorded."""


def install(monkeypatch):
    """What torch.cuda has for graphs; random numbers are those of the CPU. Returns the list of graphs."""
    GRAPHS.clear()
    del STREAMS[1:]
    for name, value in {
        "CUDAGraph": Graph,
        "graph": recording,
        "graph_pool_handle": lambda: (0, next(POOLS)),
        "Stream": new_stream,
        "current_stream": lambda: STREAMS[-1],
        "set_stream": STREAMS.append,
        "stream": on_stream,
        "get_rng_state": torch.get_rng_state,
        "set_rng_state": torch.set_rng_state,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return GRAPHS


class Graph:
    """Recorded operations, with their arguments and results."""

    def __init__(self):
        self.calls, self.replays = [], 0

    @torch.no_grad()
    def replay(self):
        """Execute the operations again; results have the memory that they had."""
        self.replays += 1
        for function, args, kwargs, results in self.calls:
            for old, new in zip(tensors(results), tensors(function(*args, **kwargs)), strict=True):
                if old.untyped_storage().data_ptr() != new.untyped_storage().data_ptr():
                    old.detach().copy_(new)


@contextlib.contextmanager
def on_stream(stream):
    """Another current stream."""
    before = STREAMS[-1]
    STREAMS.append(stream)
    yield
    STREAMS.append(before)


@contextlib.contextmanager
def recording(graph, pool, stream, capture_error_mode):
    """Record the operations of the context. As torch: if they fail, so does the end, and the stream stays."""
    before, recorder = STREAMS[-1], Recorder()  # as on a GPU, what is recorded is not executed
    STREAMS.append(stream)
    RECORDING.append(recorder)
    try:
        with recorder:
            yield
    except Exception as error:
        raise RuntimeError("operation failed due to a previous error during capture") from error
    finally:
        RECORDING.clear()
        recorder.undo()
    STREAMS.append(before)
    graph.calls, graph.pool = recorder.calls, pool
    GRAPHS.append(graph)


class Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls, self.written = [], []

    def undo(self):
        """Give tensors the values that they had before."""
        with torch.no_grad():
            for tensor, value in reversed(self.written):
                tensor.copy_(value)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        for argument, value in zip(function._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                self.written += [(tensor.detach(), tensor.detach().clone()) for tensor in tensors(value)]
        result = function(*args, **(kwargs or {}))
        self.calls.append((function, args, kwargs or {}, result))
        return result


def tensors(values):
    """The tensors of a result, which may be a tuple of them."""
    values = values if isinstance(values, list | tuple) else [values]
    return [value for value in values if torch.is_tensor(value)]
