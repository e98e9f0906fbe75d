"""A fake fairseq-train that writes the same log lines, checkpoints and event files in milliseconds.

Flags after `--` change its behavior: --fail-seed S (exit code 3), --fail-data FOLDER (the same for this
data), --fail-early (the same before the first update), --hang-seed S (sleeps after the first epoch),
--no-best (no checkpoint_best.pt), --stubborn (ignores SIGTERM), --linger SECONDS (sleeps first).
"""

import argparse
import json
import os
import signal
import sys
import time
import zipfile
from pathlib import Path

COMMAND = (sys.executable, __file__)
UPDATES = 10  # per epoch


def record(subset, **values):
    print(f"2026-01-02 03:04:05 | INFO | {subset} | {json.dumps(values)}", flush=True)


def save(path, epoch):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("epoch", str(epoch))


def main():
    parser = argparse.ArgumentParser()
    for flag in ("--save-dir", "--tensorboard-logdir", "--valid-subset", "--restore-file"):
        parser.add_argument(flag)
    for flag in ("--seed", "--max-epoch", "--fail-seed", "--hang-seed"):
        parser.add_argument(flag, type=int)
    parser.add_argument("--fail-data")
    parser.add_argument("--linger", type=float, default=0.0)
    parser.add_argument("--no-best", action="store_true")
    parser.add_argument("--fail-early", action="store_true")
    parser.add_argument("--stubborn", action="store_true")
    args, _ = parser.parse_known_args()
    folder = Path(args.save_dir)
    names = ("OMP_NUM_THREADS", "MALLOC_MMAP_THRESHOLD_", "CUDA_VISIBLE_DEVICES")
    start = {"argv": sys.argv[1:], "env": {name: os.environ.get(name) for name in names}, "pid": os.getpid()}
    with open(folder / "starts.jsonl", "a", encoding="utf-8") as stream:
        print(json.dumps(start), file=stream)
    time.sleep(args.linger)
    if args.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    print(
        "2026-01-02 03:04:05 | INFO | fairseq_plugin.training.precision | precision: bf16 (as requested)",
        flush=True,
    )
    print(
        "2026-01-02 03:04:05 | INFO | fairseq_cli.train | "
        "num. shared model params: 2,500 (num. trained: 2,000)"
    )
    if args.fail_early or (args.fail_data and args.fail_data == Path(sys.argv[1]).name):
        print("RuntimeError: out of memory")
        sys.exit(3)
    first = 1
    if (folder / "checkpoint_last.pt").exists():
        with zipfile.ZipFile(folder / "checkpoint_last.pt") as archive:
            first = int(archive.read("epoch")) + 1
    best = 0.0
    for epoch in range(first, args.max_epoch + 1):
        record(
            "train_inner",
            epoch=epoch,
            update=float(epoch),
            loss="0.7",
            wps="900",
            num_updates=str(UPDATES * epoch),
        )
        if args.seed == args.fail_seed:
            print("RuntimeError: the loss is not a number")
            sys.exit(3)
        accuracy = min(50.0 + 10 * epoch, 85.0)
        valid = {"valid_accuracy": str(accuracy), "valid_num_updates": str(UPDATES * epoch)}
        if epoch > 1:
            valid["valid_best_accuracy"] = str(max(best, accuracy))
        record("valid", epoch=epoch, **valid)
        for subset in args.valid_subset.split(",")[1:]:
            record(subset, epoch=epoch, **{f"{subset}_accuracy": str(accuracy - 5 - args.seed)})
        for subset in ("train", *args.valid_subset.split(",")):
            (Path(args.tensorboard_logdir) / subset).mkdir(parents=True, exist_ok=True)
            (Path(args.tensorboard_logdir) / subset / f"events.out.tfevents.{os.getpid()}").touch()
        if not args.no_best:
            save(folder / "checkpoint_best.pt", epoch)
        save(folder / "checkpoint_last.pt", epoch)
        print(
            f"2026-01-02 03:04:05 | INFO | fairseq.checkpoint_utils | Saved checkpoint {folder}/c.pt "
            f"(epoch {epoch} @ {UPDATES * epoch} updates, score {accuracy}) (writing took 0.1 seconds)",
            flush=True,
        )
        record("train", epoch=epoch, train_loss="0.6")
        if args.seed == args.hang_seed and epoch == 1:
            time.sleep(600)


if __name__ == "__main__":
    main()
