"""Files whose digests are then the expected ones."""

from dataclasses import replace

import pytest

from roberta_small.common.files import sha256
from roberta_small.preprocess.download import command
from roberta_small.preprocess.download.fetch import Digest


@pytest.fixture
def expect(monkeypatch):
    """Call it to expect the files of a download as they are in a folder."""

    def expected(what, folder):
        sources = [
            replace(source, files={name: Digest("sha256", sha256(folder / name)) for name in source.files})
            for source in command.SOURCES[what]
        ]
        monkeypatch.setitem(command.SOURCES, what, tuple(sources))

    return expected
