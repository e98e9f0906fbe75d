"""On a GPU, forward and backward pass of a classifier are one CUDA graph, and the update another one.

An update of a small model consists of some hundred kernels, and launching them takes longer than computing
them. A CUDA graph is a recorded sequence of kernels that is launched at once, with the same tensors each
time: batches are copied into tensors of a fixed size, for each multiple of `TOKENS` tokens another graph.

After it has been recorded, a graph is replayed on its first batch, and has to give the loss and the gradients
that the operations gave when they were called one by one, with the same dropout masks. If it does not, or if
recording fails (memory may not suffice), there is a warning, and training continues without graphs.

Not all trainings and batches can use graphs (`repeatable`). The update, from the gradient norm to the
weights, is a graph that does not depend on the size (`gpu_update`).

Shapes: B sentences, T tokens of a batch, with padding.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from roberta_small.fairseq_plugin.models.causal import CausalEncoder
from roberta_small.fairseq_plugin.models.packed import PackedTransformerEncoder, Packing
from roberta_small.fairseq_plugin.tasks.batches import packing_of
from roberta_small.fairseq_plugin.tasks.criterion import SentenceClassificationCriterion
from roberta_small.fairseq_plugin.training import distributed
from roberta_small.fairseq_plugin.training.gpu_update import Result
from roberta_small.fairseq_plugin.training.optimizer import FairseqFusedAdam

logger = logging.getLogger(__name__)
TOKENS = 256
"""T is a multiple of this."""
MOST = 64
"""Graphs of a model; batches of other sizes are computed without."""
ENCODERS = (PackedTransformerEncoder, CausalEncoder)
"""Not their subclasses: in a graph, lengths on the CPU are bounds, which only these are known to respect."""
POOLINGS = ("first", "last", "mean")
WARM_UPS = 2
"""Passes before a graph is recorded: libraries allocate memory and choose kernels in the first ones."""
SAME_LOSS, SAME_NORM = 1e-4, 1e-2
"""Relative differences that are rounding: the sums of the gradient of embeddings have no fixed order."""
Step = Callable[..., tuple[Tensor, Any, dict[str, Any]]]


def replaying(
    original: Step,
    task: FairseqTask,
    sample: Any,
    model: Any,
    criterion: Any,
    optimizer: Any,
    *args: Any,
    **kwargs: Any,
) -> tuple[Tensor, Any, dict[str, Any]]:
    """Replace `FairseqTask.train_step`: on a GPU, a classifier's update consists of CUDA graphs."""

    def step(sample: Any) -> tuple[Tensor, Any, dict[str, Any]]:
        return original(task, sample, model, criterion, optimizer, *args, **kwargs)

    ignored = kwargs.get("ignore_grad", False) or any(args[1:])
    if ignored or not repeatable(sample, model, criterion, optimizer):
        return step(sample)
    graphs = _graphs.get(model) or _graphs.setdefault(model, Graphs(model))
    if any(parameter.grad is not None for parameter in graphs.parameters):  # added to by this batch
        return step(sample)
    optimizer.repeat_update(graphs)
    return graphs.step(step, sample, packing_of(sample, model.encoder.sentence_encoder.padding_idx))


def repeatable(sample: dict[str, Any], model: Any, criterion: Any, optimizer: Any) -> bool:
    """Whether the passes of this batch are the same sequence of kernels as those of others."""
    encoder: Any = getattr(getattr(model, "encoder", None), "sentence_encoder", None)
    return (
        type(encoder) in ENCODERS
        and not hasattr(encoder, "embed_second")
        and model.args.pooling in POOLINGS
        and next(encoder.parameters()).is_cuda
        and not distributed.active()
        and isinstance(optimizer, FairseqFusedAdam)
        and isinstance(criterion, SentenceClassificationCriterion)
        and not criterion.weights
        and "packing" in sample
        and "soft_target" not in sample
        and len(sample["packing"]["lengths"]) == len(sample["target"])
    )


class Graphs:
    """The graphs of a model, by their number of sentences and of tokens.

    The gradients of all graphs are the same tensors, which are zeroed at their beginning.
    """

    def __init__(self, model: Any) -> None:
        self.parameters = list(model.parameters())
        self.longest: int = model.max_positions()
        self.graphs: dict[tuple[int, int], Graph] = {}
        self.seen: set[tuple[int, int]] = set()
        self.gradients: dict[nn.Parameter, Tensor] = {}
        self.works = True
        self.pool = torch.cuda.graph_pool_handle()
        self.side: Any = None  # a stream for all recordings, because each keeps memory of its own

    def step(
        self, step: Step, sample: dict[str, Any], packing: Packing
    ) -> tuple[Tensor, Any, dict[str, Any]]:
        """What `step(sample)` returns and the gradients that it leaves, from a graph if possible.

        A size is recorded when it occurs for the second time.
        """
        size = len(sample["target"]), -(-len(packing.positions_T) // TOKENS) * TOKENS
        if size not in self.graphs and (size not in self.seen or len(self.graphs) >= MOST):
            self.seen.add(size)
            return step(sample)
        if not self.works:
            return step(sample)
        if size in self.graphs:
            return self._replayed(self.graphs[size], sample, packing)
        random = torch.cuda.get_rng_state()
        graph = Graph(*size, self.longest, sample)
        try:
            with cleaned_up(self.pool):
                self._record(graph, step, sample, packing, random)
        except Exception as error:
            # Recording can fail in any way. If its end fails, too, the first error is the context.
            self.give_up(error.__context__ or error)
        else:
            self.graphs[size] = graph
        torch.cuda.set_rng_state(random)
        for parameter in self.parameters:
            parameter.grad = None
        return self._replayed(graph, sample, packing) if self.works else step(sample)

    def _replayed(
        self, graph: Graph, sample: dict[str, Any], packing: Packing
    ) -> tuple[Tensor, Any, dict[str, Any]]:
        graph.fill(sample, packing)
        graph.recorded.replay()
        for parameter, gradient in self.gradients.items():
            parameter.grad = gradient
        loss, size, output = graph.result
        return loss, size, output | {"ntokens": sample["ntokens"]}

    def _record(
        self, graph: Graph, step: Step, sample: dict[str, Any], packing: Packing, random: Tensor
    ) -> None:
        """Record a graph, and compare it with its operations; raises `RuntimeError` if they differ."""
        graph.fill(sample, packing)
        side = self.side = self.side or torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                torch.cuda.set_rng_state(random)
                for parameter in self.parameters:
                    parameter.grad = None
                loss, _, _ = step(graph.sample)
            expected = torch.stack([loss.detach().float(), self._norm()])
            del loss  # and with it what autograd keeps of the last pass
        torch.cuda.current_stream().wait_stream(side)
        for parameter in self.parameters:
            if parameter.grad is not None and parameter not in self.gradients:
                self.gradients[parameter] = torch.empty_like(parameter.grad)
        for parameter in self.parameters:
            parameter.grad = self.gradients.get(parameter)
        with self._recording(graph.recorded, self.pool):
            torch._foreach_zero_(list(self.gradients.values()))
            loss, size, output = step(graph.sample)
        graph.result = loss.detach(), size, output
        torch.cuda.set_rng_state(random)
        graph.recorded.replay()
        found = torch.stack([graph.result[0].float(), self._norm()])
        difference = ((found - expected) / expected.abs().clamp(min=1e-6)).abs().tolist()
        if not (difference[0] <= SAME_LOSS and difference[1] <= SAME_NORM):
            loss_and_norm = ", ".join(f"{value:.2g}" for value in difference)
            raise RuntimeError(f"relative differences of loss and gradient norm: {loss_and_norm}")

    def _recording(self, graph: torch.cuda.CUDAGraph, pool: Any) -> Any:
        """A context in which kernels are recorded.

        Only this thread must not call CUDA otherwise meanwhile: another one may load the next batch.
        """
        return torch.cuda.graph(graph, pool=pool, stream=self.side, capture_error_mode="thread_local")

    def record(self, function: Callable[[], Result]) -> tuple[torch.cuda.CUDAGraph, Result]:
        """A graph of the kernels that the function launches, which are not executed, and its result.

        It has memory of its own: replayed between a graph of the passes and the reading of its results, it
        would overwrite them in shared memory.
        """
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        with cleaned_up(pool), self._recording(graph, pool):
            result = function()
        return graph, result

    def _norm(self) -> Tensor:
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        return torch.nn.utils.get_total_norm(gradients).float()

    def give_up(self, failure: BaseException) -> None:
        """Continue without graphs, with a warning."""
        reason = (str(failure) or repr(failure)).splitlines()[0]
        self.works = False
        self.graphs.clear()
        self.gradients.clear()
        logger.warning("training continues without CUDA graphs: %s", reason)


@contextlib.contextmanager
def cleaned_up(pool: Any) -> Iterator[None]:
    """A context in which recording may fail; operations can be called one by one afterwards.

    A recording that fails leaves its stream the current one, and torch before 2.13 also the generator of
    random numbers and the allocator in the state of recording (pytorch#176752, pytorch#180395).
    """
    device, stream = torch.cuda.current_device(), torch.cuda.current_stream()
    generator = torch.cuda.default_generators[device]
    fresh = generator.clone_state()
    try:
        yield
    except Exception:
        torch.cuda.set_stream(stream)
        generator.graphsafe_set_state(fresh)
        with contextlib.suppress(RuntimeError, AttributeError, TypeError):  # if it is not recording
            torch._C._cuda_endAllocateToPool(device, pool)
        raise


class Graph:
    """A recorded forward and backward pass, whose kernels read the tensors of `sample`."""

    result: tuple[Tensor, Any, dict[str, Any]]  # of fairseq's `train_step` when they were recorded

    def __init__(self, sentences: int, tokens: int, longest: int, like: dict[str, Any]) -> None:
        device = like["net_input"]["src_tokens"].device
        self.recorded = torch.cuda.CUDAGraph()
        self.tokens_T = torch.zeros(tokens, dtype=torch.int64, device=device)
        self.positions_T = torch.zeros(tokens, dtype=torch.int64, device=device)
        self.offsets = torch.full((sentences + 2,), tokens, dtype=torch.int32, device=device)
        self.target = torch.zeros_like(like["target"])
        # Lengths are read when the kernels are recorded: here, a bound of all lengths and of the padding.
        lengths = (max(longest, TOKENS),) * sentences
        packing = Packing((sentences, tokens), lengths, None, self.positions_T, self.offsets, None)
        self.sample: dict[str, Any] = {
            "net_input": {"src_tokens": self.tokens_T.view(1, tokens)},
            "packing": dict(vars(packing)),
            "target": self.target,
            "ntokens": tokens,
            "nsentences": sentences,
        }

    def fill(self, sample: dict[str, Any], packing: Packing) -> None:
        """Copy a batch into the tensors; rows beyond its tokens are any token, which changes no result."""
        rows, tokens = len(packing.positions_T), packing.tokens
        self.tokens_T[:rows].copy_(packing.pack(sample["net_input"]["src_tokens"]))
        self.positions_T[:rows].copy_(packing.positions_T)
        self.tokens_T[tokens:].zero_()
        self.positions_T[tokens:].zero_()
        self.offsets[:-1].copy_(packing.offsets[: len(self.offsets) - 1])
        self.target.copy_(sample["target"])


def of(model: nn.Module) -> dict[tuple[int, int], Graph]:
    """The graphs of a model by B and T; none if one could not be recorded."""
    return _graphs[model].graphs if model in _graphs else {}


_graphs: weakref.WeakKeyDictionary[nn.Module, Graphs] = weakref.WeakKeyDictionary()
