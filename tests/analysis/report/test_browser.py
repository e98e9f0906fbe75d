"""The report in a browser, if one is installed: curves, keyboard, links, phone, dark mode, print."""

import re

import pytest

from roberta_small.analysis.query import Query
from roberta_small.analysis.read.runs import find_runs
from roberta_small.analysis.report.findings import gather
from roberta_small.analysis.report.page import render_report
from tests.support.analysis.chromium import BROWSER, browser
from tests.support.analysis.prediction_files import write_predictions
from tests.support.analysis.run_trees import write_six_runs

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium")

READOUT = """[...document.querySelectorAll(".readout tr")]
  .map((row) => [...row.children].map((cell) => cell.textContent))"""
OPEN = '[...document.querySelectorAll("main > details")].filter(({ open }) => open).map(({ id }) => id)'
POINT = """(() => {
  const plot = document.querySelector(".panel svg"), box = plot.getBoundingClientRect();
  plot.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + 50, clientY: box.top + 50 }));
})()"""
FOCUSED = "`${document.activeElement.localName} ${document.activeElement.textContent.trim()}`"
OVERFLOWING = """[...document.querySelectorAll("body *")]
  .filter((element) => !element.closest(".wide, svg") && element.getClientRects().length)
  .filter((element) => element.getBoundingClientRect().right > innerWidth + 1)
  .map((element) => element.outerHTML.slice(0, 99))"""
TOO_SMALL = """[...document.querySelectorAll("figure svg, .panel svg")]
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
    findings = gather(find_runs(root / "runs"), Query(test_size=2000))
    (root / "page.html").write_text(render_report(findings), encoding="utf-8")
    return (root / "page.html").as_uri()


@pytest.fixture
def report(page, address):
    """The page with the report, in a window of 1200 pixels."""
    page.resize(1200)
    page.media()
    page.open("about:blank")
    page.open(address)
    return page


def test_curves_under_the_policy_of_the_page(report):
    assert report.run('document.querySelectorAll(".run").length') == 6 * 2
    assert report.run('document.querySelectorAll(".mean").length') == 2 * 2
    rows = report.run(READOUT)
    assert rows[0] == ["epoch 3", "valid", "test"]
    assert rows[1] == ["fairseq/pretrained/seed1", "80.00", "78.00"]
    assert rows[4] == ["fairseq/pretrained, mean of 3 shown", "81.17", "78.83"]


def test_runs_are_switched_off_and_values_are_read(report):
    report.run('document.querySelector(".group input").click()')  # the first group
    report.run('document.querySelectorAll(".group button")[5].click()')  # the last seed of the other
    report.run(POINT)
    assert report.run('document.querySelectorAll(".run").length') == 2 * 2
    assert report.run(READOUT) == [
        ["epoch 1", "valid", "test"],
        ["fairseq/random/seed1", "50.00", "50.50"],
        ["fairseq/random/seed2", "65.00", "66.75"],
        ["fairseq/random, mean of 2 shown", "57.50", "58.63"],
    ]


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
    assert {"Main findings", "Results"} <= regions
    assert any(role == "image" and "dot" in name for role, name in elements)  # the figure, once
    assert sum(role == "image" and "dot" in name for role, name in elements) == 1
    named = ("image", "button", "link", "region", "checkbox", "combobox")
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
    back = "getComputedStyle(document.querySelector('.themed path')).fill"
    light = report.run(back)
    report.media(scheme="dark")
    assert report.run(LUMINANCE) < 0.2
    assert report.run(back) != light


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
