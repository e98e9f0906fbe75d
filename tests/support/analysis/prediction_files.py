"""Prediction files for small run trees."""

from roberta_small.common.data_folder import keys_of
from roberta_small.common.predictions import Prediction, file_name, write


def write_predictions(run, labels, predicted, split="test", texts=None):
    """Write one prediction per label; the classes are 0 and 1, the predicted one has probability 0.9."""
    write(
        run / file_name(split),
        [
            Prediction(index, label, {"0": 0.9, "1": 0.1} if prediction == "0" else {"0": 0.1, "1": 0.9})
            for index, (label, prediction) in enumerate(zip(labels, predicted, strict=True))
        ],
        None if texts is None else keys_of([texts]),
    )
