"""The order of the tests."""


def pytest_collection_modifyitems(items):
    """Longest first, so that no core waits for it at the end."""
    items.sort(key=lambda item: "test_readme" not in item.nodeid)
