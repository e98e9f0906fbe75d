"""Stand-in for the `tests/utils.py` of fairseq, which its source distribution lacks.

It is copied beside fairseq's own tests, so it imports nothing of this project. Data are sentences of random
letters in `train`, `valid` and `test`, with the suffixes `.in` and `.out`; checkpoints are written to the
folder of the data.
"""

import random
import string
import sys
from io import StringIO
from pathlib import Path

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import generate, interactive, preprocess, train, validate

LANGUAGES = ["--source-lang", "in", "--target-lang", "out"]
SUBSETS = ("train", "valid", "test")
READING = ["--no-progress-bar", "--num-workers", "0"]


def create_dummy_data(data_dir, num_examples=100, maxlen=20):
    for subset in SUBSETS:
        for suffix in ("in", "out"):
            sentences = (
                " ".join(random.choices(string.ascii_lowercase, k=random.randint(1, maxlen)))
                for _ in range(num_examples)
            )
            Path(data_dir, f"{subset}.{suffix}").write_text("\n".join(sentences) + "\n")


def _preprocess(data_dir, suffix, flags):
    files = [part for s in SUBSETS for part in (f"--{s}pref", str(Path(data_dir, s + suffix)))]
    parser = options.get_preprocessing_parser()
    preprocess.main(parser.parse_args([*files, "--destdir", str(data_dir), *flags]))


def preprocess_translation_data(data_dir, extra_flags=()):
    _preprocess(data_dir, "", [*LANGUAGES, *extra_flags])


def preprocess_lm_data(data_dir):
    _preprocess(data_dir, ".out", ["--only-source"])


def _parse(parser, flags):
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, [str(flag) for flag in flags]))


def _train_and_validate(data_dir, train_flags, data_flags, run_validation, extra_valid_flags):
    shared = [data_dir, *data_flags, "--max-tokens", 500, *READING]
    saving = ["--save-dir", data_dir, "--max-epoch", 1, "--distributed-world-size", 1]
    train.main(_parse(options.get_training_parser(), [*shared, *saving, *train_flags]))
    if run_validation:
        checkpoint = ["--path", Path(data_dir, "checkpoint_last.pt"), "--valid-subset", "valid"]
        parser = options.get_validation_parser()
        validate.main(_parse(parser, [*shared, *checkpoint, *(extra_valid_flags or ())]))


def train_translation_model(
    data_dir, arch, extra_flags=None, task="translation", run_validation=False, extra_valid_flags=None
):
    train_flags = ["--arch", arch, "--optimizer", "nag", "--lr", 0.05, *(extra_flags or ())]
    data_flags = ["--task", task, *LANGUAGES]
    _train_and_validate(data_dir, train_flags, data_flags, run_validation, extra_valid_flags)


def train_language_model(
    data_dir, arch, extra_flags=None, run_validation=False, extra_valid_flags=None, task="language_modeling"
):
    train_flags = ["--arch", arch, "--optimizer", "adam", "--lr", 0.0001, "--tokens-per-sample", 500]
    train_flags += ["--ddp-backend", "legacy_ddp"]  # required by the adaptive softmax
    _train_and_validate(
        data_dir, [*train_flags, *(extra_flags or ())], ["--task", task], run_validation, extra_valid_flags
    )


def generate_main(data_dir, extra_flags=("--print-alignment",)):
    """Translate `valid` from files, then one sentence from standard input."""
    flags = [data_dir, "--path", Path(data_dir, "checkpoint_last.pt"), "--beam", 3, "--batch-size", 64]
    flags += ["--max-len-b", 5, "--gen-subset", "valid", "--no-progress-bar"]
    cfg = _parse(options.get_generation_parser(), [*flags, *extra_flags])
    generate.main(cfg)
    cfg.interactive.buffer_size, cfg.interactive.input, cfg.dataset.batch_size = 0, "-", None
    terminal, sys.stdin = sys.stdin, StringIO("h e l l o\n")
    try:
        interactive.main(cfg)
    finally:
        sys.stdin = terminal


def _absent(*_, **__):
    raise NotImplementedError("the tests that need this function are not selected")


create_laser_data_and_config_json = preprocess_summarization_data = _absent
