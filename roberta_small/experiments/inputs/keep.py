"""What a run folder keeps of its data: everything that is needed to classify text, but no examples.

RUN/inputs/ is a data folder without splits: dictionaries, tokenizer, and the options of preprocess.json. A
run can therefore be moved to another machine, and be used after its data folder has been deleted.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from roberta_small.common.data_folder import INPUTS, REPORT, read_report
from roberta_small.common.files import atomic_folder, sha256
from roberta_small.common.label_kinds import KIND, SCALING
from roberta_small.eval.origin import DICTIONARY, DataFolder, resolve_recorded

DICTIONARIES = ("input0/dict.txt", "input1/dict.txt", "label/dict.txt")
KEPT = ("tokenizer", KIND, SCALING)
"""Keys of preprocess.json that are kept as they are."""


def keep_inputs(data: Path, folder: Path) -> None:
    """Write RUN/inputs/ of the run in `folder`, unless it exists or `data` is no binarized data folder.

    The SentencePiece model of data that were binarized with one elsewhere is copied too, if it is the same.
    """
    target = folder / INPUTS
    if target.exists() or not (data / DICTIONARY).is_file():
        return
    from roberta_small.preprocess.tokenization.choice import FOLDER, TRANSFORMERS  # slow to import

    report = read_report(data)
    with atomic_folder(target) as new:
        for name in DICTIONARIES:
            if (data / name).is_file():
                (new / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(data / name, new / name)
        if (data / "input1").is_dir():  # by which sentence pairs are recognized
            (new / "input1").mkdir(exist_ok=True)
        if not report:
            return
        options = dict(report.get("options", {}))
        kept = {"options": options, **{key: report[key] for key in KEPT if key in report}}
        recorded = options.get("sentencepiece_model")
        if report.get("tokenizer", {}).get("kind") == TRANSFORMERS:
            shutil.copytree(data / FOLDER, new / FOLDER)
        elif recorded is not None:
            inside = data / recorded
            model = inside if inside.is_file() else resolve_recorded(recorded)
            digest = DataFolder(data, report).digest(recorded)
            if model.is_file() and digest in (None, sha256(model)):
                (new / FOLDER).mkdir(exist_ok=True)
                shutil.copyfile(model, new / FOLDER / model.name)
                options["sentencepiece_model"] = f"{FOLDER}/{model.name}"
                kept["files"] = {options["sentencepiece_model"]: sha256(model)}
        (new / REPORT).write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
