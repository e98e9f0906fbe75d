"""`roberta-small download`: the public data and models, from their authors' servers.

    cls-books   French book reviews of Webis-CLS-10, as train.review/.label and test.review/.label
    flue        FLUE's classification tasks, as {cls-books,cls-dvd,cls-music,paws-x,xnli}/SPLIT.jsonl
    glue        GLUE's nine tasks in English, as {CoLA,SST-2,MRPC,STS-B,QQP,MNLI,QNLI,RTE,WNLI}/SPLIT.jsonl;
                the labels of test are hidden (submission: roberta-small predict --format glue)
    allocine    French film reviews of the Allociné data set, as train.jsonl, valid.jsonl and test.jsonl
    xlmr        SentencePiece model of XLM-R (`FacebookAI/xlm-roberta-base`)
    bloom       BLOOM-560m (`bigscience/bloom-560m`)

Each file is checked against the digest recorded for it here, and its SHA-256 is printed:

    cls-books   SHA-256 of the archive, from the FLUE loader of Hugging Face `datasets`
    flue, glue  the same, from their loaders there
    allocine    the same, from the loader of Allociné there
    xlmr        SHA-256 that Hugging Face publishes
    bloom       the same for tokenizer.json and model.safetensors; of the three small JSON files the host
                publishes git's SHA-1 alone: detects corruption but not forgery

Run again, the command resumes an interrupted download; files that are complete and correct are skipped.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from roberta_small.common.errors import UserError
from roberta_small.common.files import cache_folder, sha256
from roberta_small.preprocess.download import archives
from roberta_small.preprocess.download.fetch import Digest, copy, fetch


@dataclass(frozen=True)
class Source:
    """Files that belong together: their address is `base/<name>`."""

    base: str
    files: dict[str, Digest]


def _source(base: str, files: dict[str, str]) -> Source:
    """`files` maps names to digests in hexadecimal: SHA-256, or git's SHA-1."""
    kinds = {64: "sha256", 40: "git"}
    return Source(base, {name: Digest(kinds[len(value)], value) for name, value in files.items()})


CLS = _source(
    "https://zenodo.org/record/3251672/files",
    {archives.CLS_ARCHIVE: "51504dea54dfad525ec5373db0606a263393feb9182ffc50c276682936e14ee5"},
)
XNLI = _source(
    "https://dl.fbaipublicfiles.com/XNLI",
    {
        archives.XNLI_TRAIN_ARCHIVE: "f732517ba2fb1d550e9f3c2aabaef6017c91ee2dcec90e878f138764d224db05",
        archives.XNLI_ARCHIVE: "4ba1d5e1afdb7161f0f23c66dc787802ccfa8a25a3ddd3b165a35e50df346ab1",
    },
)
SOURCES: dict[str, tuple[Source, ...]] = {
    "cls-books": (CLS,),
    "flue": (
        CLS,
        _source(
            "https://storage.googleapis.com/paws/pawsx",
            {archives.PAWSX_ARCHIVE: "4146db499101d66e68ae4c8ed3cf9dadecd625f44b7d8cf3d4a0fe93afc4fd9f"},
        ),
        XNLI,
    ),
    "glue": (
        _source(
            "https://dl.fbaipublicfiles.com/glue/data",
            {
                "CoLA.zip": "f212fcd832b8f7b435fb991f101abf89f96b933ab400603bf198960dfc32cbff",
                "SST-2.zip": "d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa",
                "STS-B.zip": "e60a6393de5a8b5b9bac5020a1554b54e3691f9d600b775bd131e613ac179c85",
                "QQP-clean.zip": "40e7c862c04eb26ee04b67fd900e76c45c6ba8e6d8fab4f8f1f8072a1a3fbae0",
                "MNLI.zip": "e7c1d896d26ed6caf700110645df426cc2d8ebf02a5ab743d5a5c68ac1c83633",
                "QNLIv2.zip": "e634e78627a29adaecd4f955359b22bf5e70f2cbd93b493f2d624138a0c0e5f5",
                "RTE.zip": "6bf86de103ecd335f3441bd43574d23fef87ecc695977a63b82d5efb206556ee",
                "WNLI.zip": "ae0e8e4d16f4d46d4a0a566ec7ecceccfd3fbfaa4a7a4b4e02848c0f2561ac46",
                archives.MRPC_DEV: "971d7767d81b997fd9060ade0ec23c4fc31cbb226a55d1bd4a1bac474eb81dc7",
            },
        ),
        _source(
            "https://dl.fbaipublicfiles.com/senteval/senteval_data",
            {
                archives.MRPC_TRAIN: "60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89",
                archives.MRPC_TEST: "a04e271090879aaba6423d65b94950c089298587d9c084bf9cd7439bd785f784",
            },
        ),
    ),
    "allocine": (
        _source(
            "https://github.com/TheophileBlard/french-sentiment-analysis-with-bert/raw/master/allocine_dataset",
            {archives.ALLOCINE_ARCHIVE: "8c49a8cac783da201697ed1a91b36d2f6618222b3b7ea1c2996f2a3fbc37dfb4"},
        ),
    ),
    "xlmr": (
        _source(
            "https://huggingface.co/FacebookAI/xlm-roberta-base/resolve/main",
            {"sentencepiece.bpe.model": "cfc8146abe2a0488e9e2a0c56de7952f7c11ab059eca145a0a727afce0db2865"},
        ),
    ),
    "bloom": (
        _source(
            # A fixed revision, so that the digests are those of its files.
            "https://huggingface.co/bigscience/bloom-560m/resolve/e985a63cdc139290c5f700ff1929f0b5942cced2",
            {
                "config.json": "a9f31df161b949147c63449ead0bd4e5fc70770d",
                "tokenizer_config.json": "e7016b49fcff7e162946ec012d3c7b4db0b66d87",
                "special_tokens_map.json": "25bc39604f72700b3b8e10bd69bb2f227157edd1",
                "tokenizer.json": "3fa39cd4b1500feb205bcce3b9703a4373414cafe4970e0657b413f7ddd2a9d3",
                "model.safetensors": "a8702498162c95d68d2724e7f333c83d7be08de81cfc091455c38730682116d3",
            },
        ),
    ),
}
"""Those of FLUE and GLUE are recorded by their loaders."""
UNPACK: dict[str, Callable[[Path], None]] = {
    "cls-books": archives.unpack_books,
    "flue": archives.unpack_flue,
    "glue": archives.unpack_glue,
    "allocine": archives.unpack_allocine,
}
"""What is done with the archives in the folder."""


def xlmr_tokenizer() -> Path:
    """XLM-R's SentencePiece model: from the cache, or downloaded into it; errors as for `fetch`."""
    folder = cache_folder() / "xlmr"
    (source,) = SOURCES["xlmr"]
    ((name, digest),) = source.files.items()
    try:
        fetch(f"{source.base}/{name}", folder / name, digest)
    except UserError as error:
        raise UserError(
            f"{error}; with a local copy, run roberta-small download xlmr --from FOLDER --out "
            f"{shlex.quote(str(folder))}, or pass --tokenizer FILE"
        ) from None
    return folder / name


def run(args: argparse.Namespace) -> None:
    """The command: fetch or copy the files, print their SHA-256, unpack archives."""
    sources = SOURCES[args.what]
    if args.url:
        sources = tuple(replace(source, base=args.url) for source in sources)
    if args.sha256:
        if (number := sum(len(source.files) for source in sources)) > 1:
            raise UserError(f"--sha256: {args.what} has {number} files; only for single-file downloads")
        if not re.fullmatch("[0-9a-fA-F]{64}", args.sha256):
            raise UserError(f"--sha256 {args.sha256}: not 64 hexadecimal digits")
        digest = Digest("sha256", args.sha256.lower())
        sources = tuple(replace(source, files=dict.fromkeys(source.files, digest)) for source in sources)
    for source in sources:
        for name, digest in source.files.items():
            target = args.out / name
            if args.local is None:
                fetch(f"{source.base.rstrip('/')}/{name}", target, digest)
            else:
                copy(args.local / name, target, digest)
            print(f"{target}: {digest.name} as expected; sha256 {sha256(target)}")
    if args.what in UNPACK:
        UNPACK[args.what](args.out)


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `download`."""
    parser = subparsers.add_parser(
        "download",
        help="fetch the public data and models, checked and resumable",
        description=__doc__,
        examples="example: roberta-small download cls-books --out data/cls-books",
    )
    parser.add_argument("what", choices=sorted(SOURCES))
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the files")
    origin = parser.add_mutually_exclusive_group()
    origin.add_argument(
        "--from",
        dest="local",
        type=Path,
        metavar="DIR",
        help="folder with local copies to use instead of downloading",
    )
    origin.add_argument("--url", help="URL of a mirror with the original file names")
    parser.add_argument(
        "--sha256",
        metavar="HEX",
        help="expected SHA-256 instead of the recorded one (single-file downloads only)",
    )
    parser.set_defaults(run=run)
