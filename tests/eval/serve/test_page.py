"""The page in a browser: typed text, shown results, and the addresses that it requests."""

import json
import re
import subprocess
import sys

import pytest

from roberta_small.eval import Ensemble, SentenceClassifier
from roberta_small.eval.origin import find_runs
from roberta_small.eval.serve import app
from tests.support.analysis.chromium import BROWSER
from tests.support.servers import LIMITS, serving
from tests.support.tiny_runs import GOOD

pytest.importorskip("captum")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium")
# Chooses the model, types the texts, submits them as Ctrl+Enter does, and writes down what the page requests.
TYPING = """
const typing = setInterval(() => {
  if (!models.length) return;
  clearInterval(typing);
  if (MODEL) { $("model").value = MODEL; $("model").dispatchEvent(new Event("change")); }
  document.querySelectorAll("textarea").forEach((area, i) => { area.value = TEXTS[i]; });
  document.querySelector("textarea").dispatchEvent(
    new KeyboardEvent("keydown", { key: "Enter", ctrlKey: true, bubbles: true }));
  const waiting = setInterval(() => {
    const shown = $("explanation").hidden ? !$("result").hidden : $("words").childNodes.length;
    if (!$("error").textContent && !shown) return;
    clearInterval(waiting);
    const requested = performance.getEntriesByType("resource").map((entry) => entry.name);
    const hidden = [...document.querySelectorAll("[hidden]")];
    const displayed = hidden.filter((one) => getComputedStyle(one).display !== "none").map((one) => one.id);
    document.body.append(element("pre", JSON.stringify([requested, displayed])));
  }, 50);
}, 50);
"""


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """Open the page under its own policy and type; returns the DOM when the words are shown."""

    def open_page(classifiers, *texts, model=None):
        content = app.PAGE.read_text("utf-8")
        typing = TYPING.replace("TEXTS", json.dumps(texts).replace("<", "\\u003c"))
        typing = typing.replace("MODEL", json.dumps(model))
        template = tmp_path / "page.html"
        # Inside the page's own script, whose hash the policy has.
        begin, end = content.rsplit("</script>", 1)
        template.write_text(f"{begin}{typing}</script>{end}", encoding="utf-8")
        monkeypatch.setattr(app, "PAGE", template)
        with serving(*classifiers) as server:
            options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000"]
            command = [BROWSER, *options, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", server.url]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
            requested, displayed = json.loads(re.search(r"<pre>(.*?)</pre>", done.stdout)[1])
            assert displayed == []
            assert {name.removeprefix(server.url) for name in requested} == {"version", "predict"}
        return done.stdout

    return open_page


def inside(page, name):
    """The text of an element, without tags."""
    content = re.search(rf'<(\w+)[^>]* id="{name}"[^>]*>(.*?)</\1>', page, re.S)[2]
    return " ".join(re.sub("<[^>]*>", " ", content).split())


def test_prediction_and_words_of_one_checkpoint(trained, opened):
    classifier = SentenceClassifier.from_run(trained.run, device="cpu")
    text = f"un </script><b>livre</b> {GOOD} 汉字"
    page = opened([classifier], text)
    (prediction,) = classifier.predict([text])
    percent = f"{100 * prediction.probabilities[prediction.predicted]:.1f} %"
    assert inside(page, "predicted") == f"{prediction.predicted} {percent}"
    rows = inside(page, "probabilities").split(" %")
    assert rows[0].split()[0] == prediction.predicted
    assert len(rows) == 3
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert GOOD in inside(page, "words")
    assert 'class="word for"' in page
    assert inside(page, "notes")
    assert re.search(r'id="seeds" hidden', page)


def test_every_checkpoint_of_an_ensemble_is_shown(sweep, opened):
    ensemble = Ensemble.from_runs(sweep, device="cpu")
    page = opened(ensemble.members, f"un livre {GOOD}")
    (mean,) = ensemble.predict([f"un livre {GOOD}"])
    own = [member.predict([f"un livre {GOOD}"])[0] for member in ensemble.members]
    shown = [f"{100 * one.probabilities[mean.predicted]:.1f} %" for one in [*own, mean]]
    table = inside(page, "members") + " " + inside(page, "mean")
    assert re.findall(r"\d+\.\d %", table) == shown
    assert not re.search(r'id="seeds" hidden', page)
    agree = sum(one.predicted == mean.predicted for one in own)
    assert re.match(rf"{agree} of 2 ", inside(page, "agreement"))


def test_one_of_several_models_is_chosen(trained, pairs, opened):
    runs = find_runs([trained.run, pairs.run])
    classifiers = [SentenceClassifier.from_run(run, device="cpu") for run in runs]
    page = opened(classifiers, "un livre", "une histoire", model=runs[1].name)
    (prediction,) = classifiers[1].predict([("un livre", "une histoire")])
    percent = f"{100 * prediction.probabilities[prediction.predicted]:.1f} %"
    assert inside(page, "predicted") == f"{prediction.predicted} {percent}"
    assert inside(page, "words") == "un livre une histoire"
    assert not re.search(r'id="models" hidden', page)


def test_notes_on_a_long_text_and_no_words_without_explanations(trained, monkeypatch, opened):
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    classifier = SentenceClassifier.from_run(trained.run, device="cpu")
    text = "汉字 " + "livre " * 100
    page = opened([classifier], text)
    assert re.search(r'id="explanation" hidden', page)
    assert inside(page, "predicted")
    (length,) = classifier.text_input.encode([text]).lengths
    assert re.findall(r"\d+", inside(page, "notes"))[1:] == ["32", str(length)]  # --max-positions of the run


def test_an_error_is_shown(trained, opened):
    text = "u" * (LIMITS["characters"] + 1)
    page = opened([SentenceClassifier.from_run(trained.run, device="cpu")], text)
    assert "--max-characters" in inside(page, "error")
    assert re.search(r'<main id="result" hidden', page)
