"""Updates on a GPU: their losses against those of a CPU, and where their time goes.

    python -m benchmarks.gpu.checks updates|timing DATA [--device cpu] [--tiny] [--out FOLDER]

DATA is a folder of `benchmarks.gpu.data`. The rows that are printed are also written to FOLDER/NAME.json.
`--device cpu --tiny` tests this module.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import shlex
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.trainer import Trainer
from fairseq.utils import set_torch_seed

import roberta_small.fairseq_plugin  # noqa: F401  registers tasks, models and the optimizer
from benchmarks.settings import SIZES, Sizes
from roberta_small.fairseq_plugin.training import graphs

TINY = Sizes(layers=2, embed=16, ffn=16, heads=2)
COMMON = shlex.split(
    "--max-positions 256 --optimizer fused_adam --lr 1e-4 --lr-scheduler polynomial_decay "
    "--total-num-update 1000 --warmup-updates 5 --adam-betas '(0.9,0.98)' --weight-decay 0.01 --seed 1 "
    "--num-workers 0 --no-progress-bar --distributed-world-size 1 --arch roberta_small"
)
CLASSIFY = shlex.split(
    "--task sentence_classification --criterion sentence_classification --init-token 0 --separator-token 2 "
    "--shorten-method truncate"
)
MASKED = shlex.split(
    "--task masked_lm --criterion fast_masked_lm --tokens-per-sample 256 --sample-break-mode none"
)
NO_DROPOUT = shlex.split("--dropout 0 --attention-dropout 0 --pooler-dropout 0")
UPDATES, WARM_UP, TIMED, PROFILED = 20, 10, 30, 5
TINY_UPDATES = 2
LIMITS = {"fp32": 2e-3, "bf16": 5e-2}
"""Largest difference of a loss in bits after `UPDATES` updates."""


class Checks:
    """The rows of a check on a device."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.device, self.tiny, self.data, self.out = args.device, args.tiny, args.data, args.out
        self.warm_up, self.timed = (1, TINY_UPDATES) if args.tiny else (WARM_UP, TIMED)
        self.compared = TINY_UPDATES if args.tiny else UPDATES
        self.rows: list[dict[str, Any]] = []

    def note(self, name: str, **values: Any) -> None:
        """Add and print a row; `ok` is whether it passed."""
        self.rows.append({"name": name, **values})
        state = {True: "ok  ", False: "FAIL"}.get(values.pop("ok", None), "    ")
        shown = [f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in values.items()]
        print(f"{state} {name:38} {'  '.join(shown)}", flush=True)

    def trainer(self, words: Sequence[object], device: str) -> Trainer:
        """The trainer of a command line of fairseq-train."""
        metrics.reset()
        given = [*map(str, words), *COMMON, *(["--cpu"] if device == "cpu" else [])]
        cfg = convert_namespace_to_omegaconf(
            options.parse_args_and_arch(options.get_training_parser(), given)
        )
        set_torch_seed(cfg.common.seed)
        task = tasks.setup_task(cfg.task)
        model = task.build_model(cfg.model)
        return Trainer(cfg, task, model, task.build_criterion(cfg.criterion))

    def sizes(self, name: str) -> list[str]:
        """The flags of a size of the model."""
        sizes = TINY if self.tiny else SIZES[name]
        return [word for pair in sizes.flags().items() for word in pair]

    def updates(self) -> None:
        """Losses without dropout, of a classifier and of a masked language model."""
        sizes = [*self.sizes("small"), *NO_DROPOUT]
        self.compare("classifier", [self.data / "reviews", *CLASSIFY, *sizes, "--batch-size", 8])
        self.compare("masked LM", [self.data / "corpus", *MASKED, *sizes, "--batch-size", 4])

    def compare(self, name: str, words: Sequence[object]) -> None:
        """Losses of the device in both precisions with those of a CPU in fp32."""
        expected: list[float] = []
        for device, precision in (("cpu", "fp32"), (self.device, "fp32"), (self.device, "bf16")):
            found = self.losses(self.trainer([*words, "--precision", precision], device))
            expected = expected or found
            off = max(abs(a - b) for a, b in zip(found, expected, strict=True))
            self.note(f"{name}, {self.compared} updates, {device} {precision}", last=found[-1], off=off,
                      ok=off < LIMITS[precision])  # fmt: skip

    def losses(self, trainer: Trainer) -> list[float]:
        """The loss of each update in bits, read after it, although a GPU waits."""
        found = []
        for sample in batches(trainer, self.compared):
            with metrics.aggregate("update"):
                trainer.train_step([sample])
            found.append(float(metrics.get_smoothed_values("update")["loss"]))
            metrics.reset_meters("update")
        return found

    def timing(self) -> None:
        """Updates of classifiers of both sizes, and of masked language models."""
        for size, batch in itertools.product(["small"] if self.tiny else SIZES, (8, 32)):
            words = [self.data / "reviews", *CLASSIFY, *self.sizes(size), "--batch-size", batch]
            self.time(f"{size}, {batch} sentences", words)
        blocks = [self.data / "corpus", *MASKED, *self.sizes("small"), "--batch-size", 32]
        self.time("masked LM, 32 blocks", blocks)

    def time(self, name: str, words: Sequence[object]) -> None:
        """Milliseconds of an update, CPU milliseconds of its parts, and what the profiler counts.

        The CPU milliseconds of an update minus those of the passes are what fairseq's trainer costs.
        """
        metrics.get_smoothed_values("default")  # logs the last update, which holds the trainer before
        if self.device != "cpu":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        trainer = self.trainer([*words, "--precision", "bf16"], self.device)
        making = time.process_time()
        samples = batches(trainer, self.warm_up + self.timed)
        making = (time.process_time() - making) / len(samples)
        # All batches: a CUDA graph is recorded when a size of batches occurs for the second time.
        for sample in samples if self.device == "cpu" else [*samples, *samples]:
            trainer.train_step([sample])
        self.synchronize()
        wall, cpu = time.perf_counter(), time.process_time()
        for sample in samples[self.warm_up :]:
            trainer.train_step([sample])
        cpu = time.process_time() - cpu  # of launching: without the wait, which may keep a core busy
        self.synchronize()
        wall = time.perf_counter() - wall
        alone = self.passes(trainer, samples[self.warm_up :])
        tokens = statistics.mean(float(sample["ntokens"]) for sample in samples[self.warm_up :])
        profile = self.profile(name, trainer, samples[-PROFILED:])
        profile |= {"graphs": len(graphs.of(trainer.model)), "batch_ms": 1e3 * making, "passes_cpu_ms": alone}
        self.note(name, ms=1e3 * wall / self.timed, cpu_ms=1e3 * cpu / self.timed, tokens=tokens, **profile)

    def passes(self, trainer: Trainer, samples: Sequence[Any]) -> float:
        """CPU milliseconds of an update's passes and of the optimizer, without fairseq's trainer."""
        prepared = [trainer._prepare_sample(sample)[0] for sample in samples]
        self.synchronize()
        start = time.process_time()
        for sample in prepared:
            trainer.optimizer.zero_grad()
            trainer.task.train_step(sample, trainer.model, trainer.criterion, trainer.optimizer, 0)
            trainer.optimizer.clip_grad_norm(0.0)
            trainer.optimizer.step()
        seconds = time.process_time() - start
        self.synchronize()
        return 1e3 * seconds / len(prepared)

    def synchronize(self) -> None:
        """Wait for the GPU."""
        if self.device != "cpu":
            torch.cuda.synchronize()

    def profile(self, name: str, trainer: Trainer, samples: Sequence[Any]) -> dict[str, float]:
        """Kernels, GPU milliseconds and waits of an update; FOLDER/profile-*.txt lists the kernels."""
        if self.device == "cpu":
            return {}
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profiler:
            for sample in samples:
                trainer.train_step([sample])
        self.synchronize()
        averages, count = profiler.key_averages(), len(samples)
        kernels = [
            event
            for event in averages
            if event.device_type == torch.autograd.DeviceType.CUDA and not event.is_user_annotation
        ]
        kernels.sort(key=lambda event: -event.self_device_time_total)
        lines = [
            f"{event.self_device_time_total / 1000 / count:8.3f} ms {event.count / count:6.1f} x {event.key}"
            for event in kernels
        ]
        path = self.out / f"profile-{name.replace(' ', '-').replace(',', '')}.txt"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        waits = [
            event for event in averages if event.key in ("cudaStreamSynchronize", "cudaDeviceSynchronize")
        ]
        return {
            "gpu_ms": sum(event.self_device_time_total for event in kernels) / 1000 / count,
            "kernels": sum(event.count for event in kernels) / count,
            "waits": sum(event.count for event in waits) / count,
            "GB": torch.cuda.max_memory_reserved() / 1e9,  # tensors of graphs do not count as allocated
        }


def batches(trainer: Trainer, count: int) -> list[Any]:
    """The first batches of an epoch, again from the start if it has fewer."""
    iterator = trainer.get_train_iterator(epoch=1).next_epoch_itr(shuffle=True)
    trainer.begin_epoch(1)
    return list(itertools.islice(itertools.cycle(list(itertools.islice(iterator, count))), count))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a check; the exit code is 1 if a row failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=("updates", "timing"))
    parser.add_argument("data", type=Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("gpu-output"))
    args = parser.parse_args(arguments)
    logging.disable(logging.INFO)
    args.out.mkdir(parents=True, exist_ok=True)
    checks = Checks(args)
    {"updates": checks.updates, "timing": checks.timing}[args.name]()
    path = args.out / f"{args.name}.json"
    path.write_text(json.dumps(checks.rows, indent=1) + "\n", encoding="utf-8")
    return int(any(row.get("ok") is False for row in checks.rows))


if __name__ == "__main__":
    sys.exit(main())
