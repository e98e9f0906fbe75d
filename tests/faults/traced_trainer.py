"""fairseq-train that records its phase in a file and can kill itself at an exact moment.

The sweep starts it instead of fairseq-train, with two variables:

    FAULTS_STATE  file of a few bytes: the current phase (see `state`)
    FAULTS_AIM    PHASE:SEED:UPDATE:TIMES:FRACTION, or empty: when to kill sweep and trainer with SIGKILL.
                   "log:2:30:7:0.4" is the seventh event from update 30 of the run with seed 2 on, after
                   40 % of its bytes
"""

import io
import os
import signal
import sys

from tests.faults.state import State

STATE = State(os.environ["FAULTS_STATE"])
AIM, *PLACE, TIMES, FRACTION = (os.environ.get("FAULTS_AIM") or "nothing:0:0:0:0").split(":")
reached = 0


def aimed(phase):
    """Whether to kill now."""
    global reached
    reached += phase == AIM and STATE.read()[1] >= tuple(map(int, PLACE))
    return phase == AIM and reached == int(TIMES)


def die():
    """Kill the sweep and the process group of the trainer; nothing is flushed or closed."""
    os.kill(os.getppid(), signal.SIGKILL)
    os.killpg(os.getpgrp(), signal.SIGKILL)
    signal.pause()


def part(content):
    return bytes(content[: int(len(content) * float(FRACTION))])


def save(original):
    """torch.save into an open file; all of it stands in the phase `save`, a part on the disk."""

    def wrapped(obj, stream):
        with STATE.phase("save"):
            if aimed("save"):
                buffer = io.BytesIO()
                original(obj, buffer)
                stream.write(part(buffer.getbuffer()))
                stream.flush()
                die()
            return original(obj, stream)

    return wrapped


def copy(original):
    def wrapped(source, target, overwrite=False):
        with STATE.phase("copy"):
            if aimed("copy"):
                with open(source, "rb") as whole, open(target, "wb") as stream:
                    stream.write(part(whole.read()))
                die()
            return original(source, target, overwrite=overwrite)

    return wrapped


def save_all(original):
    """Everything that belongs to a checkpoint, and the moment after it: the epoch is not in the log yet."""

    def wrapped(*arguments):
        path = original(*arguments)
        if aimed("saved"):
            STATE.enter("saved")
            die()
        return path

    return wrapped


def valid_step(original):
    def wrapped(trainer, sample, *arguments, **options):
        with STATE.phase("validate"):
            if aimed("validate"):
                die()
            return original(trainer, sample, *arguments, **options)

    return wrapped


def train_step(original):
    def wrapped(trainer, *arguments, **options):
        STATE.enter("train")
        result = original(trainer, *arguments, **options)
        STATE.reach(trainer.cfg.common.seed, trainer.get_num_updates())
        return result

    return wrapped


def write_record(original, writer_class):
    """A record of an event file, which a thread of its own writes."""

    def wrapped(writer, data):
        with STATE.logging():
            if aimed("log"):
                record = io.BytesIO()
                original(writer_class(record), data)
                writer._writer.write(part(record.getvalue()))
                writer._writer.flush()
                die()
            original(writer, data)

    return wrapped


def main():
    STATE.enter("start")
    from fairseq_cli import train  # before anything else of fairseq: it decides how a line of the log looks
    from tensorboard.summary.writer.record_writer import RecordWriter

    checkpoint_utils, trainer = train.checkpoint_utils, train.Trainer
    checkpoint_utils._torch_persistent_save = save(checkpoint_utils._torch_persistent_save)
    checkpoint_utils.PathManager.copy = copy(checkpoint_utils.PathManager.copy)
    checkpoint_utils.save_checkpoint = save_all(checkpoint_utils.save_checkpoint)
    trainer.valid_step = valid_step(trainer.valid_step)
    trainer.train_step = train_step(trainer.train_step)
    RecordWriter.write = write_record(RecordWriter.write, RecordWriter)
    sys.argv[0] = "fairseq-train"
    train.cli_main()
    STATE.enter("end")


if __name__ == "__main__":
    main()
