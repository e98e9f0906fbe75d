"""The note on an accuracy that differs from the log."""

import numpy as np
import pandas as pd
import pytest

from roberta_small.analysis.features.accuracy import accuracy_table

RUN = {"arm": ["fairseq"], "init": ["random"], "seed": [1]}


@pytest.mark.parametrize("counted", [60.05, 61.4, 62.75, 64.1])
@pytest.mark.parametrize(("difference", "noted"), [(0.1, False), (-0.1, False), (0.15, True), (-0.15, True)])
def test_note_on_more_than_a_tenth_of_a_point_in_single_precision(counted, difference, noted):
    data = pd.DataFrame({**RUN, "n": 2000, "accuracy": counted, "low": 50.0, "high": 70.0})
    logged = pd.DataFrame({**RUN, "value": float(np.float32(counted + difference))})
    notes = accuracy_table(data, logged, "test", None).notes
    assert any("0.1 points" in note and "fairseq/random/seed1" in note for note in notes) is noted
