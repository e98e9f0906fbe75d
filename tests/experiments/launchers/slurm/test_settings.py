"""Options and variables of train.sh --launcher slurm."""

import pytest

from roberta_small.common.errors import UserError
from roberta_small.experiments.launchers.slurm.settings import Slurm
from roberta_small.experiments.settings import train_settings


@pytest.mark.parametrize(
    ("words", "environ", "facts"),
    [
        (["--partition", "gpu"], {}, ["--partition gpu", "--launcher slurm"]),
        (["--gpus", "1"], {"GPUS": "0"}, ["--gpus 1", "--launcher slurm"]),
        (["--no-wait"], {}, ["--no-wait", "--launcher slurm"]),
        (["--launcher", "ssh"], {}, ["--launcher 'ssh'", "local, slurm"]),
        (["--launcher", "slurm", "--jobs", "2"], {}, ["--jobs 2", "--throttle"]),
        (["--launcher", "slurm", "--gpus", "2"], {}, ["--gpus 2"]),
        (["--launcher", "slurm", "--gpus", "1", "--device", "cpu"], {}, ["--gpus 1", "--device cpu"]),
        (["--launcher", "slurm", "--cpus", "0"], {}, ["--cpus '0'"]),
        (["--launcher", "slurm", "--throttle", "x"], {}, ["--throttle 'x'"]),
        (["--launcher", "slurm", "--slurm", "'--account"], {}, ["'--account", "quot"]),
        (["--launcher", "slurm", "--slurm", "account=x"], {}, ["--slurm: ", "'account=x'"]),
        (["--launcher", "slurm", "--slurm", "--array=1-5"], {}, ["--slurm: ", "--array "]),
        (["--launcher", "slurm", "--slurm", "--qos=low --arr=1-5"], {}, ["--slurm: ", "--arr "]),
        (["--launcher", "slurm", "--slurm", "-a1-5"], {}, ["--slurm: ", "-a1-5 "]),
        (["--launcher", "slurm", "--slurm", "--", "--lr", "1"], {}, ["--slurm: "]),
    ],
)
def test_an_invalid_option_raises(words, environ, facts):
    with pytest.raises(UserError) as caught:
        train_settings(["--data", "bin", "--inits", "random", *words], environ)
    assert all(fact in str(caught.value) for fact in facts)


def test_settings_from_options_and_variables():
    environ = {"DATA": "bin", "INITS": "random"}
    environ |= {"LAUNCHER": "slurm", "TIME": "60", "SLURM": "-A x", "CPUS": "2"}
    found = train_settings(["--cpus", "4", "--slurm", "--qos=low", "--no-wait"], environ).slurm
    assert found == Slurm(time="60", cpus=4, extra=("--qos=low",), wait=False)
    assert train_settings([], {"DATA": "bin", "INITS": "random"}).slurm is None


def test_variables_are_ignored_without_the_launcher():
    environ = {"DATA": "bin", "INITS": "random", "TIME": "%E real", "GPUS": "x"}
    assert train_settings([], environ).slurm is None
