"""Where the time of our own updates goes: torch.profiler over some of them."""

from __future__ import annotations

from typing import Any

from .. import words
from ..measure import RESULT, Contender, execute, python, say
from ..settings import Settings
from .finetune import ENGINES, changes

UPDATES = 5
WARM_UP = 5
SHOWN = 25


def run(settings: Settings) -> dict[str, Any]:
    """Own time of each operator over all profiled updates; `report` writes it as profile.md."""
    engine = ENGINES["ours"] | {"--max-update": str(WARM_UP + UPDATES)}
    flags = words.ours(settings, "reference", settings.data, changes(settings, "ours") | engine)
    command = python("benchmarks.timed.fairseq_profile", RESULT, WARM_UP, UPDATES, *flags)
    say(f"profile: {UPDATES} updates of fine-tuning, ours")
    contender = Contender("ours", command, words.tuned(settings))
    record = execute(contender, settings, settings.output / "logs" / "profile.txt")
    return {
        "name": "profile",
        "title": f"Operators in {UPDATES} updates of fine-tuning, ours, by their own {record['device']} time",
        "total_ms": sum(row["ms"] for row in record["operators"]),
        "operators": record["operators"][:SHOWN],
    }
