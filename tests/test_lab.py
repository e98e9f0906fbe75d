"""docs/lab.ipynb: it is stored without outputs, and every cell runs."""

import re
import sys
import types
from pathlib import Path

import pytest

from roberta_small.common import manifest
from roberta_small.experiments.models import sizes
from roberta_small.fairseq_plugin.models.parameters import table as parameter_table
from tests.support import preloaded

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("captum")
ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "docs" / "lab.ipynb"
SECONDS = 600
"""For one cell, on a busy machine."""


def read():
    return nbformat.read(NOTEBOOK, as_version=4)


def source(pattern):
    """The one code cell that contains a pattern."""
    (found,) = [cell.source for cell in read().cells if cell.cell_type == "code" and pattern in cell.source]
    return found


def test_the_notebook_is_valid_and_stored_without_outputs():
    notebook = read()
    nbformat.validate(notebook)
    assert [cell.id for cell in notebook.cells] == [f"cell-{i:02d}" for i in range(len(notebook.cells))]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None
    assert set(notebook.metadata) == {"kernelspec", "language_info"}


def test_links_resolve():
    text = "\n".join(cell.source for cell in read().cells if cell.cell_type == "markdown")
    targets = re.findall(r"\]\(([^)#\s]+)", text)
    assert targets
    assert not [target for target in targets if not (NOTEBOOK.parent / target).is_file()]


@pytest.mark.parametrize("colab", [True, False])
def test_the_first_cell_installs_in_colab_only(colab, monkeypatch, tmp_path):
    started = []
    monkeypatch.setattr("subprocess.run", lambda words, **options: started.append((words, options)))
    if colab:
        monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    exec(source("google.colab"), {})
    assert len(started) == 3 * colab
    assert all(options["check"] for _, options in started)
    if colab:
        clone, install, fairseq = [words for words, _ in started]
        assert clone[:2] == ["git", "clone"]
        assert re.search(r"^explain = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
        assert install[-1] == ".[explain]"
        assert fairseq[1:] == ["-m", "roberta_small", "install-fairseq"]


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The notebook after execution, and the folder of its files."""
    folder = tmp_path_factory.mktemp("lab")
    notebook = read()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "PYTHON": preloaded.python(),
            "TMPDIR": str(folder),
            "IPYTHONDIR": str(folder / "ipython"),
            "CUDA_VISIBLE_DEVICES": "",
        }.items():
            patch.setenv(name, value)
        resources = {"metadata": {"path": str(folder)}}
        nbclient.NotebookClient(notebook, timeout=SECONDS, resources=resources).execute()
    (files,) = folder.glob("lab-*")
    return notebook, files


def outputs(notebook, pattern):
    """The outputs of the one code cell that contains a pattern."""
    (cell,) = [cell for cell in notebook.cells if cell.cell_type == "code" and pattern in cell.source]
    return cell.outputs


def printed(notebook, pattern):
    return "".join(output.text for output in outputs(notebook, pattern) if output.output_type == "stream")


def shown(notebook, pattern, kind):
    return [output.data[kind] for output in outputs(notebook, pattern) if kind in output.get("data", {})]


@pytest.mark.long  # six training runs, a minute on two idle cores
def test_every_cell_runs_and_shows_what_it_promises(executed):
    notebook, files = executed

    words = "--vocabulary 1000 --max-positions 256 --encoder-layers 2 --encoder-embed-dim 64 "
    words += "--encoder-ffn-embed-dim 64 --encoder-attention-heads 2"
    rows, _ = parameter_table(sizes(words.split()))
    parameters = sum(count for name, _, _, count in rows if not name.startswith("LM head"))
    assert f"total {parameters:,}" in printed(notebook, "by_formula = ")
    assert (
        re.findall(r"[\d,]{4,}\d", printed(notebook, "counted = ").splitlines()[0]) == [f"{parameters:,}"] * 2
    )

    for name in ("reviews/input0/train.bin", "reviews/label/dict.txt", "corpus/train.bin", "ppmi.pt"):
        assert (files / name).stat().st_size > 0
    runs = sorted(path.parent for path in files.glob("runs/*/*/seed*/manifest.json"))
    assert [run.relative_to(files / "runs").parts[:2] for run in runs] == [
        *[("fairseq", "ppmi")] * 3, *[("fairseq", "random")] * 3, ("tfidf", "tfidf"),
    ]  # fmt: skip
    assert {manifest.read(run)["status"] for run in runs} == {"finished"}

    assert len(shown(notebook, "draw_curves(table, chance", "image/png")) == 1
    assert len(shown(notebook, "draw_seeds(", "image/png")) == 1
    (tables,) = shown(notebook, "Markdown(render", "text/markdown")
    for init in ("random", "ppmi"):
        assert len(re.findall(rf"^\| fairseq +\| {init} +\| +[123] \|", tables, re.MULTILINE)) == 3

    compared = printed(notebook, "roberta-small compare")
    assert len(re.findall(r"fairseq/ppmi *\| *fairseq/random", compared)) >= 2
    marks = shown(notebook, "explain_texts(", "text/html")
    assert marks[0].count("<b>predicted") == 2
    assert 'class="word for"' in marks[0].partition("<p><b>")[2]

    assert 0 < float(printed(notebook, "TextClassifier(").split()[-1]) <= 1
    (probabilities,) = shown(notebook, "TextClassifier(", "text/plain")
    assert len(re.findall(r"0\.\d|1\.", probabilities)) == 6
    assert (files / "classifier/classifier.json").is_file()
