"""The ids that an encoder of text gives to lines."""

import numpy as np

from roberta_small.preprocess.readers.lines import Block


def rows(encoder, lines):
    """The ids of each line, as lists."""
    content = "".join(f"{line}\n" for line in lines).encode()
    encoded = encoder(Block("text", 1, content, len(content)))
    return [row.tolist() for row in np.split(encoded.ids, np.cumsum(encoded.sizes)[:-1])]


def keeps_ids(encoder):
    """Whether the ids of a `TransformersEncoder` are those of its tokenizer."""
    return np.array_equal(encoder.order, np.arange(len(encoder.order)))
