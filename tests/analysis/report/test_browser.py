"""The interactive curves in a browser, if one is installed."""

import re
import shutil
import subprocess

import pytest

from analysis.read.runs import find_runs
from analysis.report.findings import Rule, gather
from analysis.report.page import render_report

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
READER = """<script>
document.querySelector(".group input").click();           // the first group goes
document.querySelectorAll(".group button")[5].click();    // and the last seed of the other
const plot = document.querySelector(".panel svg"), box = plot.getBoundingClientRect();
plot.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + 50, clientY: box.top + 50 }));
</script></body>"""

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium")


def opened(page, folder):
    """The page after its scripts have run."""
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom"]
    command = [BROWSER, *options, f"--user-data-dir={folder / 'profile'}", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def readout(page):
    table = page[page.index('<div class="wide readout">') :]
    rows = re.findall("<tr.*?</tr>", table[: table.index("</table>")])
    return [re.findall(">([^<]+)</t[dh]>", row) for row in rows]


def test_curves_under_the_policy_of_the_page(runs, tmp_path):
    page = opened(render_report(gather(find_runs(runs), Rule())), tmp_path)
    assert page.count('class="run"') == 6 * 2
    assert page.count('class="mean"') == 2 * 2
    rows = readout(page)
    assert rows[0] == ["epoch 3", "valid", "test"]
    assert rows[1] == ["fairseq/pretrained/seed1", "80.00", "78.00"]
    assert rows[4] == ["fairseq/pretrained, mean of 3 shown", "81.17", "78.83"]


def test_runs_are_switched_off_and_values_are_read(runs, tmp_path):
    page = render_report(gather(find_runs(runs), Rule()))
    page = opened(POLICY.sub("", page).replace("</body>", READER), tmp_path)
    assert page.count('class="run"') == 2 * 2
    assert readout(page) == [
        ["epoch 1", "valid", "test"],
        ["fairseq/random/seed1", "50.00", "50.50"],
        ["fairseq/random/seed2", "65.00", "66.75"],
        ["fairseq/random, mean of 2 shown", "57.50", "58.63"],
    ]
