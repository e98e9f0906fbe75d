"""The report in a browser, if one is installed: keyboard, links, phone, dark mode, print."""

import re

import pytest

from roberta_small.analysis.query import Query
from roberta_small.analysis.read.runs import find_runs
from roberta_small.analysis.report.page import render_report
from roberta_small.analysis.selection import Selection
from tests.support.analysis.chromium import BROWSER, browser
from tests.support.analysis.prediction_files import write_predictions
from tests.support.analysis.run_trees import write_six_runs

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium")

OPEN = '[...document.querySelectorAll("main > details")].filter(({ open }) => open).map(({ id }) => id)'
FOCUSED = "`${document.activeElement.localName} ${document.activeElement.textContent.trim()}`"
OVERFLOWING = """[...document.querySelectorAll("body *")]
  .filter((element) => !element.closest(".wide, svg") && element.getClientRects().length)
  .filter((element) => element.getBoundingClientRect().right > innerWidth + 1)
  .map((element) => element.outerHTML.slice(0, 99))"""
TOO_SMALL = """[...document.querySelectorAll("figure img")]
  .filter((drawing) => drawing.getClientRects().length)
  .filter((drawing) => drawing.getBoundingClientRect().width < 250).length"""
LUMINANCE = """(() => {
  const color = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number);
  return color.reduce((sum, part) => sum + part, 0) / 765;
})()"""


@pytest.fixture(scope="module")
def page():
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The report of six runs with predictions."""
    root = tmp_path_factory.mktemp("report")
    for run in write_six_runs(root / "runs").glob("*/*/seed*"):
        write_predictions(run, "0101", "0111")
    selection = Selection.of(find_runs(root / "runs"), Query(test_size=2000))
    (root / "page.html").write_text(render_report(selection, "fairseq/random"), encoding="utf-8")
    return (root / "page.html").as_uri()


@pytest.fixture
def report(page, address):
    """The page with the report, in a window of 1200 pixels."""
    page.resize(1200)
    page.media()
    page.open("about:blank")
    page.open(address)
    return page


def test_sections_open_and_close_with_the_keyboard(report):
    assert report.run(OPEN) == ["curves"]
    reached = []
    for _ in range(80):
        report.press("Tab")
        reached.append(report.run(FOCUSED))
        if reached[-1] == "summary Comparisons":
            break
    # Nothing in the closed section between them has the focus.
    assert reached[-2:] == ["summary Runs and seeds", "summary Comparisons"]
    report.press("Enter")
    assert report.run(OPEN) == ["curves", "comparisons"]
    report.press(" ")
    assert report.run(OPEN) == ["curves"]


def test_a_link_opens_its_section(report, address):
    report.run("document.querySelector('nav a[href=\"#provenance\"]').click()")
    report.run("new Promise((done) => setTimeout(done, 50))")
    assert report.run(OPEN) == ["curves", "provenance"]
    top = report.run('document.getElementById("provenance").getBoundingClientRect().top')
    assert 0 <= top < report.run("innerHeight")
    # A link to a table in a closed section, from another page.
    report.open("about:blank")
    report.open(f"{address}#table-seeds")
    assert "runs" in report.run(OPEN)


def test_all_sections_open_with_a_button_and_for_printing(report):
    everything = report.run('[...document.querySelectorAll("main > details")].map(({ id }) => id)')
    assert everything == ["curves", "runs", "comparisons", "predictions", "provenance"]
    report.run('document.querySelector(".all").click()')
    assert report.run(OPEN) == everything
    report.run("new Promise((done) => setTimeout(done, 50))")
    report.run('document.querySelector(".all").click()')
    assert report.run(OPEN) == []
    report.run('dispatchEvent(new Event("beforeprint"))')
    assert report.run("document.querySelectorAll('details:not([open])').length") == 0
    report.run('dispatchEvent(new Event("afterprint"))')
    assert report.run(OPEN) == []


def test_landmarks_and_names_for_screen_readers(report):
    elements = report.accessible()
    roles = [role for role, _ in elements]
    assert {"banner", "navigation", "main"} <= set(roles)
    regions = {name for role, name in elements if role == "region"}
    assert "Results" in regions
    assert any(role == "image" and "dot" in name for role, name in elements)  # the figure, once
    assert sum(role == "image" and "dot" in name for role, name in elements) == 1
    named = ("image", "button", "link", "region")
    assert [role for role, name in elements if role in named and not name] == []
    rows = [name for role, name in elements if role == "rowheader"]
    assert rows[:2] == ["fairseq/pretrained", "fairseq/random"]


@pytest.mark.parametrize("width", [360, 768])
def test_a_small_screen_does_not_scroll_sideways(report, address, width):
    report.resize(width)
    report.open(address)
    report.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    report.run("new Promise((done) => setTimeout(done, 50))")
    assert report.run("document.documentElement.scrollWidth") <= width
    assert report.run(OVERFLOWING) == []
    assert report.run(TOO_SMALL) == 0
    # Wide tables scroll in their own box, which has the focus for the keyboard.
    box = '[...document.querySelectorAll(".wide")].filter((box) => box.scrollWidth > box.clientWidth)'
    assert report.run(f"{box}.length") > 0
    assert report.run(f"{box}.every((one) => one.tabIndex === 0 && one.getAttribute('role') === 'region')")


def test_dark_mode(report):
    assert report.run(LUMINANCE) > 0.9
    report.media(scheme="dark")
    assert report.run(LUMINANCE) < 0.2


def test_the_printed_page_fits_a4(report):
    report.media("print")
    report.resize(700)  # A4 without its margins
    report.run('dispatchEvent(new Event("beforeprint"))')
    assert report.run(OVERFLOWING) == []
    tables = "[...document.querySelectorAll('table')]"
    assert report.run(f"Math.max(...{tables}.map((one) => one.getBoundingClientRect().right))") <= 701
    assert report.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    report.media("")
    pdf = report.pdf()
    box = re.search(rb"/MediaBox\s*\[0 0 ([\d.]+) ([\d.]+)\]", pdf)
    assert [round(float(side)) for side in box.groups()] == [595, 842]  # A4 in points
