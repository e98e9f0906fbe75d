"""A GPU that is pretended on a CPU, and a count of what would wait for it.

Tensors on the "GPU" are tensors of the CPU whose memory is noted; they have the device `cuda`. The result of
an operation is where its operands are. Operations that return values to Python, or whose result has a size
that depends on values, are counted, as with `torch.cuda.set_sync_debug_mode`. So are copies that are not
asynchronous.
"""

import traceback
from collections import Counter
from types import SimpleNamespace

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support import emulated_graphs

WAITING = {
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "_unique2",
    "bincount",
    "repeat_interleave",
    "equal",
}
READING = {torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.cpu}
CUDA = torch.device("cuda", 0)


def pretend(monkeypatch):
    """A GPU; code that asks torch.cuda finds what it needs there, also emulated graphs."""
    emulated_graphs.install(monkeypatch)
    event = SimpleNamespace(record=lambda: None, synchronize=lambda: None)
    monkeypatch.setattr(torch.cuda, "Event", lambda: event)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "default_generators", (Generator(),))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    return Gpu()


class Generator(torch.Generator):
    """Random numbers of the GPU; counts how often their state was replaced."""

    replaced = 0

    def graphsafe_set_state(self, state):
        self.replaced += 1


def train_on(gpu, trainer):
    """Move a trainer that was built for the CPU, before its optimizer is built."""
    trainer.cuda, trainer.device, trainer.cuda_env = True, CUDA, None
    for module in (trainer.model, trainer.criterion):
        for tensor in (*module.parameters(), *module.buffers()):
            gpu.put(tensor)


class Gpu(TorchFunctionMode):
    """A context in which the memory of the pretended GPU is known; `waits` counts calls by place."""

    def __init__(self):
        super().__init__()
        self.memory, self.waits, self._operations = {}, Counter(), Operations(self)

    def __enter__(self):
        super().__enter__()
        self._operations.__enter__()
        return self

    def __exit__(self, *error):
        self._operations.__exit__(*error)
        super().__exit__(*error)

    def put(self, x):
        """Note the memory of a tensor; it is kept, so that no other tensor gets its address."""
        storage = x.untyped_storage()
        self.memory[storage._cdata] = storage
        return x

    def has(self, x):
        """Whether a tensor is on the GPU."""
        return torch.is_tensor(x) and x.untyped_storage()._cdata in self.memory

    def wait(self, what):
        """Count a wait at the line of this project or of fairseq that causes it; graphs cannot wait."""
        if emulated_graphs.RECORDING:
            raise RuntimeError("operation not permitted when stream is capturing")
        frames = traceback.extract_stack()
        ours = [f for f in frames if "fairseq" in f.filename and "tests/" not in f.filename]
        place = f"{ours[-1].filename.split('/')[-1]}:{ours[-1].lineno}" if ours else "elsewhere"
        self.waits[f"{what} {place}"] += 1

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func == torch.Tensor.device.__get__:
            return CUDA if self.has(args[0]) else func(*args)
        if func == torch.Tensor.is_cuda.__get__:
            return self.has(args[0])
        here = bool(args) and self.has(args[0])
        if func in READING and here:
            self.wait(func.__name__)
        if func is torch.Tensor.to and here and is_cpu(args[1] if len(args) > 1 else kwargs.get("device")):
            if not kwargs.pop("non_blocking", False):
                self.wait("to(cpu)")
            return self._operations.outside(lambda: func(*args, **kwargs).clone())
        moved = any(map(is_gpu, args[1:]))
        host = [torch.device("cpu") if is_gpu(x) else x for x in args[1:]]
        device = kwargs.get("device")
        if is_gpu(device) or isinstance(device, int):  # fairseq gives its number
            moved, kwargs["device"] = True, "cpu"
        if moved and not here and func in (torch.Tensor.to, torch.tensor, torch.as_tensor):
            if not kwargs.get("non_blocking"):
                self.wait(f"{func.__name__} from the CPU")
            return self.put(func(*args[:1], *host, **kwargs).clone())
        if func is torch.Tensor.new_tensor and here:
            self.wait("new_tensor")
        result = func(*args[:1], *host, **kwargs)
        if (moved or (func is torch.Tensor.new_tensor and here)) and torch.is_tensor(result):
            self.put(result)
        return result


class Operations(TorchDispatchMode):
    """What happens below Python: results of operations on the GPU are there, and some wait."""

    def __init__(self, gpu):
        super().__init__()
        self.gpu, self.paused = gpu, False

    def outside(self, function):
        """Call a function whose results are not on the GPU."""
        self.paused = True
        try:
            return function()
        finally:
            self.paused = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        here = not self.paused and any(map(self.gpu.has, flatten((args, tuple(kwargs.values())))))
        if here:
            name = func.overloadpacket.__name__
            masks = [x for x in args[1] if x is not None and x.dtype == torch.bool] if name == "index" else ()
            if name in WAITING or masks:
                self.gpu.wait(name)
        result = func(*args, **kwargs)
        if here:
            for x in flatten((result,)):
                if torch.is_tensor(x):
                    self.gpu.put(x)
        return result


def flatten(values):
    """The members of nested lists and tuples."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from flatten(value)
        else:
            yield value


def is_gpu(x):
    return (isinstance(x, torch.device) and x.type == "cuda") or (isinstance(x, str) and x.startswith("cuda"))


def is_cpu(x):
    return (isinstance(x, torch.device) and x.type == "cpu") or x == "cpu"
