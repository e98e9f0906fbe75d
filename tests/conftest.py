"""The order of the tests, data that several folders test with, and the evidence of long test runs."""

import gc
import os
import random
import sys
import time
from pathlib import Path

import hypothesis
import pytest

from tests.support import composing, preloaded

composing.install()

FIGURES = pytest.StashKey[dict]()
BEGUN = time.monotonic()


def pytest_configure(config):
    config.stash[FIGURES] = {}
    if getattr(config.option, "numprocesses", None):  # the controller of pytest-xdist
        os.environ[preloaded.SHARED] = preloaded.python()
    # The same seed in all workers; RS_GENERATED is the number of examples of each test with generated inputs.
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(random.randrange(1 << 32))
    hypothesis.settings.register_profile(
        "generated",
        max_examples=int(os.environ.get("RS_GENERATED", 10)),
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        print_blob=True,
    )
    hypothesis.settings.load_profile("generated")


def pytest_collection_modifyitems(items):
    """Longest first, so that no core is idle at the end."""
    items.sort(key=lambda item: "test_readme" not in item.nodeid)


def pytest_collection_finish():
    """Leave out what is imported by now, hundreds of thousands of objects, whenever garbage is collected."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def figures(request):
    """Name -> figure, for the file RS_EVIDENCE (see `evidence`)."""
    return request.config.stash[FIGURES]


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    """Print the seed of the generated inputs, and write RS_EVIDENCE if every test passed."""
    terminalreporter.write_line(f"generated inputs: --hypothesis-seed={config.option.hypothesis_seed}")
    if (path := os.environ.get("RS_EVIDENCE")) and exitstatus == 0:
        from tests.support import evidence

        passed = len(terminalreporter.stats.get("passed", ()))
        evidence.write(path, config.option.markexpr, passed, time.monotonic() - BEGUN, config.stash[FIGURES])
        terminalreporter.write_line(f"wrote {path}")


@pytest.fixture(scope="module")
def fast_processes():
    """What this project starts with `sys.executable` is a fork of an interpreter that has imported torch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", preloaded.python())
        yield


@pytest.fixture(scope="session")
def shared_data():
    """Real reviews and XLM-R's vocabulary, where SHARED_DATA or ../shared/data has them."""
    folder = Path(os.environ.get("SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / "cls-books").is_dir():
        pytest.skip("no real data here (SHARED_DATA)")
    return folder
