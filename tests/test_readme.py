"""README and docs/: commands are run or parsed, options are documented, links and anchors resolve.

Marks above a fenced block: `<!-- run: NAME -->` runs each line as written, in one folder, in the order of
`ORDER`; `<!-- dry run: slurm -->` runs it with --dry-run where there is a sbatch. The lines of all other
blocks are parsed with the real parsers.
"""

import ast
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from docs import make_command_line
from roberta_small.common.files import SHIPPED
from tests.support import command_lines, preloaded
from tests.support.data_folders import write_data

ROOT = Path(__file__).parents[1]

from roberta_small.__main__ import COMMANDS  # noqa: E402
from roberta_small.experiments import __main__ as experiments  # noqa: E402

GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RESULTS = [
    *sorted((ROOT / "results").rglob("README.md")),
    *sorted((ROOT / "roberta_small/pretrained").rglob("README.md")),
    *sorted((ROOT / "pretrained").rglob("README.md")),
]
OTHERS = [ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
ORDER = ["data", "train", "fairseq", "analysis", "eval", "statistics", "interchange", "foreign", "causal"]
ORDER += ["by_hand", "own_criterion"]
ORDER += ["export", "hour_file", "hour_train", "hour_predict", "hour_look", "hour_export", "kinds"]
FENCE = re.compile(
    r"(?:<!-- (run|dry run): (\w+) -->\n)?^```([a-z]*)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE
)
WARNING = re.compile(r"\w+Warning\b")
# The documentation shows a larger sample and runs of a minute; a few reviews and updates are enough here.
SHORTER = {
    "preprocess.sample ": "preprocess.sample --reviews 120 --paragraphs 4000 ",
    "--recipe sample-pretrain": "--recipe {short}/pretrain.txt",
    "--recipe sample ": "--recipe {short}/sample.txt ",
    "--data reviews.tsv --seeds 1 2": "--data reviews.tsv --seeds 1 2 --epochs 1 --layers 1",
    "--out runs-scores": "--out runs-scores --epochs 1 --layers 1 --no-baselines",
    "--max-update 1125 --total-num-update 1125 --warmup-updates 67": "--max-update 2 --total-num-update 2",
    "--out runs-topics": "--out runs-topics --epochs 1 --layers 1 --no-baselines",
}


def flags_of(command):
    """Flag -> its value, of a fairseq-train command."""
    words = shlex.split(command)
    following = zip(words, [*words[1:], "--"], strict=True)
    return {flag: "" if value.startswith("--") else value for flag, value in following if flag[:2] == "--"}


def text_of(path):
    return path.read_text(encoding="utf-8")


def fences(path):
    """Mark, name, language and text of every fenced block."""
    return FENCE.findall(text_of(path))


def marked(kind):
    return {name: block for path in GUIDES for mark, name, _, block in fences(path) if mark == kind}


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """The clone by links in an empty folder."""
    folder = tmp_path_factory.mktemp("clone")
    for path in ROOT.iterdir():
        if not path.name.startswith(".") and path.name not in ("data", "runs", "demo", "pretrained"):
            (folder / path.name).symlink_to(path)
    short = folder / "short"
    short.mkdir()
    limits = "--max-update 4\n--total-num-update 4\n--warmup-updates 1\n"
    (short / "pretrain.txt").write_text(f"--base sample-pretrain\n{limits}", encoding="utf-8")
    (short / "sample.txt").write_text("--base sample\n--max-epoch 1\n", encoding="utf-8")
    reviews = write_data(folder / "data/cls-books", sizes={"train": 1800, "valid": 8, "test": 8})
    shutil.copy(SHIPPED / "dict.txt", reviews / "input0")
    for _, _, language, block in fences(ROOT / "docs/reference/fairseq-plugin.md"):
        if language in ("python", "yaml"):  # their first line names the file
            file = folder / block.split()[1]
            file.parent.mkdir(exist_ok=True)
            file.write_text(block, encoding="utf-8")
    return folder


def run(block, clone, path=""):
    for long, short in SHORTER.items():
        block = block.replace(long, short.format(short=clone / "short"))
    python = preloaded.python()
    environment = os.environ | {
        "PATH": f"{path}{Path(python).parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHON": python,
    }
    for command in block.strip().splitlines():
        done = subprocess.run(command, shell=True, cwd=clone, env=environment, capture_output=True, text=True)
        output = f"{command}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, output
        # Hydra warns of the way in which fairseq-hydra-train calls it, before the plugin is loaded.
        assert "hydra" in command or not WARNING.search(done.stdout + done.stderr), output


def assert_the_command_by_hand_is_that_of_train(clone, command):
    words = shlex.split("train --data data/cls-books --inits pretrained --seeds 1 --out runs --dry-run")
    python = [sys.executable, "-m", "roberta_small"]
    done = subprocess.run([*python, *words], cwd=clone, capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("fairseq-train ")]
    theirs, ours = flags_of(line), flags_of(command)
    places = {"--user-dir", "--restore-file", "--save-dir", "--tensorboard-logdir"}
    assert {flag for flag in ours if ours[flag] != theirs[flag]} <= places
    usual = {"--update-freq", "--clip-norm", "--precision", "--encoder", "--num-classes", "--max-epoch"}
    usual |= {"--max-tokens-valid", "--log-format", "--log-interval", "--cpu"}
    assert theirs.keys() - ours.keys() == usual


@pytest.mark.long
def test_the_marked_commands_run(clone):
    blocks = marked("run")
    assert sorted(blocks) == sorted(ORDER)
    for name in ORDER:
        run(blocks[name], clone)
    assert_the_command_by_hand_is_that_of_train(clone, blocks["by_hand"])
    assert (clone / "demo/hydra/checkpoint_best.pt").is_file()
    assert (clone / "demo" / "pretrained" / "model.pt").is_file()
    assert (clone / "demo" / "report" / "table1.tex").is_file()
    assert (clone / "demo" / "report" / "accuracy_per_epoch.png").is_file()
    assert "train" in text_of(clone / "demo/reviews/audit.json")
    logs = {path.parent.relative_to(clone): text_of(path) for path in clone.glob("demo/**/train.log")}
    assert len(logs) >= 8
    assert {run: found for run, log in logs.items() if (found := WARNING.findall(log))} == {}
    (script,) = [code for _, _, language, code in fences(ROOT / "docs/first-hour.md") if language == "python"]
    short = script.replace("epochs=2", "epochs=1, layers=1")
    # An epoch of one layer learns nothing, of which `fit` warns.
    run(f"python -W ignore -c {shlex.quote(short)}".replace("\n", "; ").replace("; ; ", "; "), clone)
    assert (clone / "classifier" / "classifier.json").is_file()
    assert (clone / "for-transformers" / "config.json").is_file()
    sbatch = clone / "short" / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text("#!/bin/sh\nexit 1\n")
    sbatch.chmod(0o755)
    (block,) = marked("dry run").values()
    run(block.replace("\n", " --dry-run\n"), clone, path=f"{clone / 'short' / 'bin'}:")


@pytest.fixture(scope="module")
def parsed(tmp_path_factory):
    """For every line of a block of commands, by page: what the real parser answers."""
    lines = [
        (str(path.relative_to(ROOT)), line)
        for path in GUIDES + RESULTS
        if path.name != "extending.md"  # commands of toys, which tests of their own run
        for _, _, language, block in fences(path)
        if language in ("", "sh", "bash")
        for line in block.replace("\\\n", " ").splitlines()
    ]
    done = subprocess.run(
        [sys.executable, str(Path(command_lines.__file__))],
        input="\n".join(line for _, line in lines),
        cwd=tmp_path_factory.mktemp("parse"),
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"line"')]
    assert len(answers) == len(lines), done.stderr
    return [(page, answer) for (page, _), answer in zip(lines, answers, strict=True)]


def test_every_documented_command_is_accepted_by_its_parser(parsed):
    refused = [f"{page}: {answer['line']}\n  {answer['error']}" for page, answer in parsed if answer["error"]]
    assert not refused, "\n".join(refused)


@pytest.mark.parametrize("title", make_command_line.titles())
def test_every_option_is_in_the_command_reference(title):
    page = text_of(make_command_line.PAGE)
    section = page.partition(f"# {title}\n")[2].partition("\n##")[0]
    assert section
    for action in make_command_line.parser_of(title)._actions:
        if action.help != "==SUPPRESS==" and "--help" not in action.option_strings:
            for option in action.option_strings[:1]:
                assert f"`{option}" in section, f"{title} {option}: run docs/make_command_line.py"


def test_the_command_reference_has_a_section_for_every_command():
    generated = text_of(make_command_line.PAGE).partition(make_command_line.MARK)[2]
    headings = re.findall(r"^##+ (.*)$", generated, flags=re.MULTILINE)
    assert headings == ["Shared options", "Commands", *make_command_line.titles()]


def test_the_front_door_has_the_commands_of_all_packages():
    known = {name for name, (package, _) in COMMANDS.items() if package == "experiments"}
    assert known == set(experiments.COMMANDS)
    for package in ("preprocess", "eval", "analysis"):
        ours = {name for name, (found, _) in COMMANDS.items() if found == package}
        theirs = set(command_lines.choices_of([], f"roberta_small.{package}")) - {"dataset"}
        assert ours == theirs, package


def anchors(path):
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", text_of(path), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", GUIDES + RESULTS + OTHERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_anchors_resolve(page):
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("page", GUIDES + RESULTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_in_python_import_names_that_exist(page):
    for _, _, language, block in fences(page):
        for node in ast.walk(ast.parse(block)) if language == "python" else ():
            if isinstance(node, ast.ImportFrom) and node.module.startswith("roberta_small"):
                module = importlib.import_module(node.module)
                for alias in node.names:
                    assert hasattr(module, alias.name) or find_spec(f"{node.module}.{alias.name}"), alias.name


@pytest.mark.parametrize("page", GUIDES + OTHERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_files_exist(page):
    packages = "|".join(
        sorted({module.partition(".")[0] for module in command_lines.MODULES} | {"common", "tests"})
    )
    for name in re.findall(rf"`((?:{packages})/[\w/]+\.py)`", text_of(page)):
        assert (ROOT / name).is_file() or (ROOT / "roberta_small" / name).is_file(), name


def test_the_makefile_has_the_documented_targets():
    makefile = text_of(ROOT / "Makefile")
    pages = "\n".join(map(text_of, GUIDES + OTHERS))
    targets = set(re.findall(r"(?:^|`)make ([a-z-]+)", pages, flags=re.MULTILINE))
    assert {"sweep", "test"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
