"""The study file: names, order and selection of groups, one error for each mistake."""

import os
import re
from pathlib import Path

import pandas as pd
import pytest

from roberta_small.analysis.__main__ import main
from roberta_small.analysis.query import WIDTHS, Query, Study
from roberta_small.analysis.study_file import FILE_KEYS, read_study
from roberta_small.common.errors import UserError
from tests.support.analysis.command_words import words_of

KNOWN = ("bow/tfidf", "fairseq/random", "fairseq,lr=1e-4/random", "hf/random")


def overridden(study_file=None, **given):
    """The study of a file, if any, with the options that override it."""
    return Study.of((read_study(study_file) if study_file else Query()).overridden(given), KNOWN)


def study_file(tmp_path, text):
    path = tmp_path / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_key_of_a_file_and_its_values(tmp_path):
    path = study_file(
        tmp_path,
        """
groups = ["hf/random", "bow/tfidf"]
exclude = ["fairseq/random"]
order = ["bow/tfidf"]
baseline = "hf/random"
pairs = [["hf/random", "bow/tfidf"]]
at = [5, "best"]
digits = 1
bold = true
wide = true
width = "one-column"
[labels]
"fairseq,lr=1e-4/random" = "Random, lr 1e-4"
[captions]
seeds = "Results"
[latex-labels]
seeds = "tab:main"
""",
    )
    query = read_study(path)
    study = Study.of(query, KNOWN)
    assert study.selected == ("bow/tfidf", "hf/random")
    assert (query.baseline, query.digits, query.bold, query.wide) == ("hf/random", 1, True, True)
    assert (query.pairs, query.at) == ((("hf/random", "bow/tfidf"),), ("5", "best"))
    assert WIDTHS[query.width] == 3.25
    assert study.label("fairseq,lr=1e-4/random") == "Random, lr 1e-4"
    assert (query.captions, query.latex_labels) == ({"seeds": "Results"}, {"seeds": "tab:main"})


def test_options_override_the_file(tmp_path):
    text = 'groups = ["hf/random"]\nbaseline = "hf/random"\nat = [1]\npairs = [["hf/random", "bow/tfidf"]]\n'
    path = study_file(tmp_path, text)
    assert read_study(path).pairs
    study = overridden(study_file=path, groups=["bow/tfidf"], baseline="bow/tfidf", at=None)
    assert (study.selected, study.query.baseline, study.query.at) == (("bow/tfidf",), "bow/tfidf", ("1",))
    assert not study.query.pairs


def test_the_label_of_a_method_is_part_of_that_of_its_groups():
    study = Study.of(Query(labels={"fairseq,lr=1e-4": "Faster", "../other:x,a=1/y": "There"}), KNOWN)
    assert study.label("fairseq,lr=1e-4/random") == "Faster/random"
    assert study.label("../other:x,a=1/y") == "There"
    assert study.label("bow/tfidf") == "bow/tfidf"


def test_order_then_groups_then_the_rest():
    assert Study.of(Query(), KNOWN).selected == KNOWN
    assert Study.of(Query(order=("hf/random",)), KNOWN).selected == ("hf/random", *KNOWN[:3])
    query = Query(groups=("hf/random", "bow/tfidf", "fairseq/random"), order=("fairseq/random",))
    study = Study.of(query, KNOWN)
    assert study.selected == ("fairseq/random", "hf/random", "bow/tfidf")
    frame = pd.DataFrame(
        {"arm": ["bow", "fairseq", "hf"], "init": ["tfidf", "random", "random"], "x": [1, 2, 3]}
    )
    assert study.sorted(frame)["x"].tolist() == [2, 3, 1]


def test_names_in_a_text_are_replaced_whole_and_labels_with_a_comma_quoted():
    study = Study.of(Query(labels={"fairseq/random": "R", "fairseq,lr=1e-4/random": "$F$"}), KNOWN)
    text = "fairseq/random, fairseq,lr=1e-4/random/seed1: my-fairseq/random x:fairseq/random fairseq/random2."
    assert study.relabel(text) == "R, $F$/seed1: my-fairseq/random x:fairseq/random fairseq/random2."
    study = Study.of(Query(labels={"fairseq/random": "Random, 1e-5"}), KNOWN)
    assert study.relabel("fairseq/random, hf/random") == "“Random, 1e-5”, hf/random"


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("groups = [", ("study.toml", "end of document")),
        ('grups = ["hf/random"]', ("study.toml", "'grups'", "groups")),
        ('groups = "hf/random"', ("study.toml, groups", '["METHOD/INIT"')),
        ("digits = 11", ("study.toml, digits", "11")),
        ('bold = "yes"', ("study.toml, bold", "'yes'")),
        ("baseline = 3", ("study.toml, baseline",)),
        ('width = "one-colum"', ("study.toml, width", "one-column")),
        ('labels = "x"', ("study.toml, labels", "[labels]")),
        ('[labels]\n"a/b" = "x"\n"a/b" = "y"', ("study.toml", "overwrite")),
        ('[captions]\ntabel1 = "x"', ("study.toml, captions", "'tabel1'", "table1")),
        ('[latex-labels]\ntable1 = "a{b"', ("study.toml, latex-labels", "'a{b'")),
        ('[labels]\n"hf/random" = " "', ("study.toml, labels", "'hf/random'")),
        ('[labels]\n"hf/random" = "a\\nb"', ("study.toml, labels", "'hf/random'")),
    ],
)
def test_a_malformed_file_is_one_error_with_its_place(tmp_path, text, facts):
    path = study_file(tmp_path, text)
    with pytest.raises(UserError) as error:
        read_study(path)
    assert all(fact in str(error.value) for fact in facts), error.value


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path):
    assert read_study(study_file(tmp_path, "\ufeffdigits = 3")).digits == 3


def test_files_that_cannot_be_read(tmp_path):
    for path in (tmp_path / "absent.toml", tmp_path):
        with pytest.raises(UserError, match=str(path)):
            read_study(path)
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(UserError, match=r"pipe\.toml"):
        read_study(tmp_path / "pipe.toml")
    (tmp_path / "latin.toml").write_bytes(b'baseline = "\xe9"')
    with pytest.raises(UserError, match=r"latin\.toml"):
        read_study(tmp_path / "latin.toml")


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ({"groups": ("hf/randm",)}, ("groups", "'hf/randm'", "did you mean hf/random?")),
        ({"exclude": ("fairseq,lr=1e-4/randm",)}, ("exclude", "did you mean fairseq,lr=1e-4/random?")),
        ({"groups": ("runs2:hf/random",)}, ("groups", "'runs2:hf/random'")),
        ({"exclude": KNOWN}, ("exclude",)),
        ({"baseline": "hf/random", "exclude": ("hf/random",)}, ("baseline", "'hf/random'", "bow/tfidf")),
        ({"pairs": (("hf/random", "hf/randm"),)}, ("pairs", "did you mean hf/random?")),
        ({"pairs": (("hf/random", "bow/tfidf"),), "exclude": ("hf/random",)}, ("pairs", "'hf/random'")),
        ({"labels": {"hf/randm": "HF"}}, ("labels", "did you mean hf/random?")),
        ({"labels": {"hf/random": "A", "bow/tfidf": "A"}}, ("'hf/random'", "'bow/tfidf'", "'A'")),
        ({"labels": {"hf/random": "bow/tfidf"}}, ("labels", "'hf/random'", "'bow/tfidf'")),
        ({"labels": {"hf": "X", "bow": "X", "bow/tfidf": "X/random"}}, ("'hf/random'", "'bow/tfidf'")),
    ],
)
def test_a_name_that_no_group_has_is_one_error_with_the_nearest_name(given, facts):
    with pytest.raises(UserError) as error:
        Study.of(Query(file="study.toml", **given), KNOWN)
    assert all(fact in str(error.value) for fact in ("study.toml", *facts)), error.value


def test_an_error_names_the_option_or_the_file_that_contains_the_name(tmp_path):
    path = study_file(tmp_path, 'groups = ["a/b"]')
    with pytest.raises(UserError, match=r"study\.toml, groups: "):
        overridden(study_file=path)
    with pytest.raises(UserError, match=r"^--groups: "):
        overridden(study_file=path, groups=["c/d"])


def test_groups_of_other_folders_are_only_for_commands_that_read_them():
    study = Study.of(Query(groups=("hf/random", "runs2:hf/random")), KNOWN, folders=True)
    assert study.selected == ("hf/random",)


@pytest.mark.parametrize("command", ["tables", "figures", "report", "compare"])
def test_every_command_reads_the_file_and_stops_before_it_writes(runs, tmp_path, capsys, command):
    path = study_file(tmp_path, 'groups = ["fairseq/randm"]')
    out = tmp_path / "out"
    assert main(words_of(command, runs, "--study", path, "--out", out)) == 1
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert len(errors) == 1
    assert "fairseq/random?" in errors[0]
    assert not out.exists()


def test_the_file_of_the_documentation_with_the_committed_runs(tmp_path, capsys):
    root = Path(__file__).parents[2]
    page = (root / "docs" / "how-to" / "analysis.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    path = study_file(tmp_path, text)
    assert (
        main(words_of("seeds", root / "results/cls-books/runs.tar.xz", "--study", path, "--format", "latex"))
        == 0
    )
    latex = capsys.readouterr().out
    assert r"\label{tab:books}" in latex
    assert r"Random, lr 1e-4 & best & 5 & 80.1*" in latex
    assert "fairseq/" not in latex
    assert latex.isascii()
    # Every key and option is in the table of the page.
    assert {f"`{key}`" for key in FILE_KEYS} <= set(
        re.findall(r"^\| (`[^`]*`)", page.replace("[", "").replace("]", ""), re.MULTILINE)
    )
