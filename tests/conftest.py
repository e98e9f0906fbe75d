"""The order of the tests, and data that several folders test with."""

import os
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items):
    """Longest first, so that no core is idle at the end."""
    items.sort(key=lambda item: "test_readme" not in item.nodeid)


@pytest.fixture(scope="session")
def shared_data():
    """Real reviews and XLM-R's vocabulary, where SHARED_DATA or ../shared/data has them."""
    folder = Path(os.environ.get("SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / "cls-books").is_dir():
        pytest.skip("no real data here (SHARED_DATA)")
    return folder
