"""Text, dictionaries and binarized files of the tests of `preprocess`."""

from pathlib import Path

import sentencepiece

from roberta_small.common.data_folder import REPORT, request, write_report
from roberta_small.common.files import atomic_folder
from roberta_small.preprocess.binarize import Split, write_data
from roberta_small.preprocess.tokenization.encoder import Encoder


def write(path, lines, end="\n"):
    path.write_bytes("".join(f"{line}{end}" for line in lines).encode())


def write_dictionary(model, path="dict.txt", extra=(), left_out=3):
    """The model's tokens but each third, so that some are outside the dictionary, and `extra` symbols."""
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    tokens = [processor.id_to_piece(i) for i in range(3, len(processor)) if i % left_out]
    write(Path(path), [f"{token} 1" for token in [*tokens, *extra] if token.split() == [token]])


def assert_same_files(ours, stocks, splits=("train", "valid")):
    for name in ["dict.txt"] + [f"{split}.{kind}" for split in splits for kind in ("bin", "idx")]:
        assert (Path(ours) / name).read_bytes() == (Path(stocks) / name).read_bytes(), name


def binarize(splits, folder, *, sentencepiece_model, dictionary="dict.txt", apostrophes=False, **options):
    """A data folder of these splits with its report; `options` are those of `write_data`."""
    encoder = Encoder.from_files(sentencepiece_model, dictionary, normalize_apostrophes=apostrophes)
    recorded = {"splits": {split.name: {"texts": split.texts, "label": split.label} for split in splits}}
    recorded |= {"sentencepiece_model": sentencepiece_model, "normalize_apostrophes": apostrophes}
    texts = [path for split in splits for paths in split.texts.values() for path in paths]
    wanted = request(recorded, [*texts, sentencepiece_model, dictionary])
    with atomic_folder(Path(folder)) as place:
        counts, labels = write_data(place, splits, encoder, **options)
        return write_report(place, REPORT, wanted | {"splits": counts, **labels})


def running_text(model, folder, train, valid=None, **options):
    """A data folder of running text."""
    splits = [
        Split(name, {".": files}, None) for name, files in (("train", train), ("valid", valid)) if files
    ]
    return binarize(splits, folder, sentencepiece_model=model, **options)


def labelled(model, folder, *names, inputs=("input0",), **options):
    """A data folder of NAME.input0 and NAME.label."""
    splits = [
        Split(name, {f"input{i}": [f"{name}.{kind}"] for i, kind in enumerate(inputs)}, f"{name}.label")
        for name in names
    ]
    return binarize(splits, folder, sentencepiece_model=model, **options)
