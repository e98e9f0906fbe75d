"""The baselines that `roberta-small train` fits beside a classifier on data of the user: seconds each."""

from __future__ import annotations

from dataclasses import dataclass, replace

from roberta_small.common.errors import UserError
from roberta_small.experiments.inputs.prepare import Source
from roberta_small.experiments.methods import Method
from roberta_small.experiments.methods.fairseq import Fairseq
from roberta_small.experiments.methods.tfidf.method import METHOD as TFIDF
from roberta_small.experiments.methods.tfidf.method import Features, TfidfSettings
from roberta_small.experiments.settings import SweepSettings
from roberta_small.experiments.sweep import Sweep

NGRAMS = "ngrams"
"""The recipe of the classifier of token n-grams, and the name of its runs."""


@dataclass(frozen=True)
class Baseline:
    """A method and its runs."""

    method: Method
    sweep: Sweep


def plan(method: Method, sweep: Sweep) -> tuple[list[Baseline], list[str]]:
    """The baselines of a sweep, and lines for the plan; none unless its settings ask for them."""
    settings = sweep.settings
    if not isinstance(settings, SweepSettings) or not settings.baselines:
        return [], []
    if settings.slurm is not None:
        return [], ["baselines: not submitted; without --slurm, the same command fits them"]
    found, notes = [], []
    folder = Source(str(sweep.data))
    tfidf = TfidfSettings(out=settings.out, device="cpu", source=folder, text=None, features=Features())
    try:
        found.append(Baseline(TFIDF, TFIDF.sweep(tfidf, TFIDF.prepare(tfidf))))
    except UserError as error:
        notes.append(f"baseline {TFIDF.name}: left out ({error})")
    trainer = method if isinstance(method, Fairseq) else Fairseq()
    ngrams = replace(
        settings, source=folder, recipe=NGRAMS, arm=NGRAMS, passthrough=(), grid={}, init_words=("random",),
        pretrained=None, device="cpu", baselines=False,
    )  # fmt: skip
    found.append(Baseline(trainer, trainer.sweep(ngrams, sweep.data)))
    names = ", ".join(baseline.sweep.trainings[0].run.method for baseline in found)
    return found, [f"baselines: {names} (--no-baselines leaves them out)", *notes]
