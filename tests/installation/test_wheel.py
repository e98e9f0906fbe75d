"""The wheel: its contents, and that it works where the packages of the clone are not importable."""

import ast
import json
import random
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import layout
import pytest
import yaml

from common.startup import SCRIPT_PREFIX

ROOT = Path(__file__).parents[2]
BUILD = "import sys; sys.path.insert(0, 'installation'); import backend; backend.build_wheel(sys.argv[1])"
IMPORT_ALL = f"""
import importlib, pkgutil, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in {layout.PACKAGES!r}:
            raise ImportError(f"{{name}} is imported by its name in the clone")

sys.meta_path.insert(0, Refuse())
import roberta_small
names = [m.name for m in pkgutil.walk_packages(roberta_small.__path__, "roberta_small.")]
names = [n for n in names if not n.endswith(("__main__", "tokenization_pieces")) and "user_dir." not in n]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-c", BUILD, str(folder)], cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """An environment with the wheel and the dependencies of this one, but without the clone."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder / "env", symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "env")}))
    wheel.extractall(packages)
    # The .pth files of these folders, one of which names the clone, have no effect here.
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in dependencies()))
    return folder


def dependencies():
    return dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))


def run(environment, *words, **kwargs):
    python = environment / "env/bin/python"
    return subprocess.run(
        [python, "-P", *words], cwd=environment, env={"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, **kwargs,
    )  # fmt: skip


def sources(folder):
    paths = (path for path in (ROOT / folder).rglob("*") if path.is_file())
    return {path.relative_to(ROOT).as_posix() for path in paths if "__pycache__" not in path.parts}


def test_the_wheel_contains_every_module_and_file_of_data_below_one_name(wheel):
    expected = {"pretrained/roberta_small_fr/model.safetensors", "pretrained/roberta_small_fr/dict.txt"}
    for folder in ("recipes", *layout.PACKAGES):
        expected |= {name for name in sources(folder) if not name.endswith(".sh")}  # they start the clone
    names = set(wheel.namelist())
    assert {f"roberta_small/{name}" for name in expected} <= names
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"roberta_small"}
    assert not [name for name in names if name.startswith("roberta_small/benchmarks")]


def test_every_package_of_the_clone_is_installed_or_excluded_on_purpose():
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == {*layout.PACKAGES, "benchmarks"}


def console_scripts(wheel):
    """Command -> `module:function`."""
    (name,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    lines = wheel.read(name).decode().splitlines()[1:]
    return dict(line.split(" = ") for line in lines if line)


def test_the_console_scripts_exist(wheel):
    scripts = console_scripts(wheel)
    assert set(scripts) == {f"{SCRIPT_PREFIX}{script}" for script in layout.SCRIPTS}
    for target in scripts.values():
        module, _, function = target.partition(":")
        tree = ast.parse(wheel.read(f"{module.replace('.', '/')}.py"))
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_no_module_of_the_wheel_imports_or_names_a_package_of_the_clone(wheel):
    wrong = []
    for name in wheel.namelist():
        if not name.endswith(".py") or name.removeprefix("roberta_small/") in layout.COPIED:
            continue
        for node in ast.walk(ast.parse(wheel.read(name))):
            if isinstance(node, ast.Import):
                found = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found = [node.module]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found = node.value.split("python -m ")[1:]
                if node.value.replace(":", ".").replace(".", "").isidentifier() and "." in node.value:
                    found.append(node.value if is_module(node.value) else "")
            else:
                continue
            wrong += [(name, text) for text in found if text.split()[:1] and top(text) in layout.PACKAGES]
    assert not wrong


def top(text):
    return text.split()[0].partition(".")[0]


def is_module(text):
    path = ROOT.joinpath(*text.partition(":")[0].split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def test_the_last_step_of_the_workflow_passes(wheel, environment):
    scripts = console_scripts(wheel)
    scripts["fairseq-train"] = "fairseq_cli.train:cli_main"
    for script, target in scripts.items():
        module, _, function = target.partition(":")
        path = environment / "env/bin" / script
        start = f"import sys; from {module} import {function}; sys.exit({function}())"
        path.write_text(f"#!/bin/sh\nexec {environment}/env/bin/python -P -c '{start}' \"$@\"\n")
        path.chmod(0o755)
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    step = jobs["wheel"]["steps"][-1]["run"]
    # fairseq looks for a relative folder beside itself, which is another environment here.
    packages = sysconfig.get_path("purelib", vars={"base": str(environment / "env")})
    step = step.replace("--user-dir ", f"--user-dir {packages}/")
    done = subprocess.run(
        ["/bin/bash", "-e", "-c", step], env={"PATH": f"{environment}/env/bin:/usr/bin:/bin"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "--seeds" in done.stdout


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("from common.errors import UserError", "from roberta_small.common.errors import UserError"),
        ("    from analysis import load_runs", "    from roberta_small.analysis import load_runs"),
        ("import common.run", "import roberta_small.common.run; from roberta_small import common"),
        ("import common.run as run", "import roberta_small.common.run as run"),
        ("import eval", "import roberta_small.eval; from roberta_small import eval"),
        (
            'M = "experiments.methods.fairseq:METHOD"',
            'M = "roberta_small.experiments.methods.fairseq:METHOD"',
        ),
        ('NAME = "preprocess.json"', 'NAME = "preprocess.json"'),
        ('seed: int = II("common.seed")', 'seed: int = II("common.seed")'),
        ('"-m", "experiments", "task"', '"-m", "roberta_small.experiments", "task"'),
        ("see python -m export --help", "see python -m roberta_small.export --help"),
        ("python -m fairseq_cli.train", "python -m fairseq_cli.train"),
        ("./train.sh --data a.csv", "roberta-small-train --data a.csv"),
        ("train.sh and pretrain.sh", "roberta-small-train and roberta-small-pretrain"),
        ("from commons import x", "from commons import x"),
        ("importing common things", "importing common things"),
    ],
)
def test_the_rules(old, new):
    assert layout.rewritten(old, "a.py", ROOT) == new


def test_a_place_that_has_changed_is_an_error():
    name = next(iter(layout.PLACES))
    with pytest.raises(ValueError, match=name):
        layout.rewritten("PLUGIN = elsewhere\n", name, ROOT)


@pytest.mark.slow  # imports torch, fairseq and Transformers
def test_every_module_can_be_imported_without_the_clone(environment):
    done = run(environment, "-c", IMPORT_ALL)
    assert done.returncode == 0, done.stderr[-3000:]
    modules = sum(
        len([name for name in sources(package) if name.endswith(".py")]) for package in layout.PACKAGES
    )
    assert int(done.stdout) > 0.9 * modules  # all but __main__


@pytest.mark.slow  # three processes that import torch and fairseq
def test_training_and_prediction_with_the_installed_commands(environment):
    rng = random.Random(0)
    rows = [(" ".join(rng.choices(["un", "livre", "long", "style"], k=9)), index) for index in range(60)]
    lines = [f"{text} {index} {('bon', 'nul')[index % 2]},{index % 2}\n" for text, index in rows]
    (environment / "reviews.csv").write_text("text,label\n" + "".join(lines))
    sizes = "--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2"
    words = "train --data reviews.csv --out runs --recipe sample --seeds 1 --inits random --device cpu --"
    words = f"{words} {sizes} --max-epoch 1"
    done = run(environment, "-m", "roberta_small.experiments", *words.split())
    assert done.returncode == 0, done.stdout + done.stderr
    folder = environment / "runs/fairseq/random/seed1"
    command = json.loads((folder / "manifest.json").read_text())["command"]
    assert command[command.index("--user-dir") + 1].endswith("roberta_small/user_dir/roberta_small_plugin")
    done = run(
        environment, "-m", "roberta_small.eval", "predict", "--checkpoint", str(folder), "un livre bon"
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["probabilities"]) == {"0", "1"}
