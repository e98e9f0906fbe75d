"""Package metadata and dependencies, each with its reason. Install with `make install`.

The package names (`common`, `analysis`, ...) are too generic to install globally: they would shadow modules
of other projects. `make install` makes an editable install into the clone's own `.venv`. A regular install
(`pip install .`) has all packages below one name, `roberta_small` (installation/layout.py): the build backend
of pyproject.toml arranges them in a temporary folder and executes this file there.
"""

import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "installation"))
import layout  # noqa: E402

PREFIX = f"{layout.NAME}." if (HERE / layout.NAME).is_dir() else ""
"""What the names of the packages begin with: nothing in the clone."""
CLONE_ONLY = ["benchmarks"]
DEPRECATED = ["baseline", "hf", "sweep"]
"""Old names of commands, kept for this release in the clone."""

INSTALL_REQUIRES = [
    # fairseq itself is not listed: its distribution (fairseq-fixed) requires torchaudio, which
    # nothing here uses and which breaks `import transformers` when its version does not match
    # torch. common/install_fairseq.py builds it without its dependencies against the installed
    # torch (`make install`; after `pip install .`, roberta-small-install-fairseq). Its actual ones:
    "bitarray",
    "cffi",
    "cython",
    "hydra-core==1.3.2",
    "regex",
    "sacrebleu>=1.4.12",
    "scikit-learn",
    "scipy",
    "tensorboardX",  # without it, fairseq's speech tasks log a hint at the start of every command
    # Dependencies of this project:
    "torch",  # the model
    "numpy>=2",  # binarized data, statistics
    "omegaconf==2.3.0",  # fairseq's configurations, inside checkpoints too
    "safetensors",  # published weights: a format that cannot execute code
    "sentencepiece",  # tokenization
    "tensorboard",  # the logs: written by fairseq, parsed by analysis
    "google-crc32c",  # checksums of event files; 100 times faster than in Python
    "pandas",  # the long table and everything derived from it
    "matplotlib",  # figures
    "pyyaml",  # metadata of model cards
    "tqdm",  # progress
]
EXTRAS = {
    "test": [
        "pytest",
        "pytest-xdist",  # parallel tests
        "ruff",
        "mypy",
        "nbclient",  # executes docs/lab.ipynb
        "ipykernel",  # the kernel for it
        "statsmodels",  # independent implementation to compare with: power, Holm, Wilson, McNemar
    ],
    "hf": [
        "transformers",  # the same model in Transformers; must be importable together with fairseq
        "accelerate",  # required by the Transformers Trainer
        "peft",  # LoRA
        "onnx",  # export: the file format
        "onnxscript",  # export: used by torch.onnx
        "onnxruntime",  # export and eval predict: checks, quantizes and runs the file
    ],
    "data": [
        "pyarrow",  # data sets in Parquet files (preprocess dataset)
        "datasets",  # data sets of the Hugging Face hub (preprocess dataset datasets:NAME)
    ],
    "4bit": [
        "bitsandbytes",  # causal LoRA in 4 bits; not installed by make install (125 MB)
    ],
    "explain": [
        "captum",  # integrated gradients (python -m eval predict --explain)
    ],
    "bench": [
        "tbparse",  # other readers of TensorBoard logs, to compare with
        "tensorboard-reducer",
    ],
}
CONSOLE_SCRIPTS = [f"roberta-small-{name} = {PREFIX}{function}" for name, function in layout.SCRIPTS.items()]
DEPRECATED_SCRIPTS = [
    "roberta-small-sweep = experiments.__main__:main",
    "roberta-small-baseline = baseline:main",
    "roberta-small-hf = hf:main",
]


def packages() -> list[str]:
    """The packages of the clone, or `roberta_small` and those below it."""
    if PREFIX:
        return find_packages(include=[layout.NAME, f"{layout.NAME}.*"])
    names = [*layout.PACKAGES, *CLONE_ONLY]
    return find_packages(include=[pattern for name in names for pattern in (name, f"{name}.*")])


class EditableOnly(build_py):
    """Refuse to build the clone's layout, except for an editable install."""

    def run(self) -> None:
        """Build for an editable install."""
        if not self.editable_mode and not PREFIX:
            raise SystemExit("error: setup.py is not a command; use `make install` or `pip install .`")
        super().run()


package_data = {"eval": ["*.html", "demo/*.html"], "analysis.report": ["assets/*"]}
if PREFIX:
    package_data = {f"{PREFIX}{name}": patterns for name, patterns in package_data.items()}
    package_data[layout.NAME] = [f"{folder}/*" for folder in layout.DATA]
setup(
    name="fairseq-roberta-small",
    version="1.0.0",
    description="Train, compare and trust small RoBERTa sentence classifiers in fairseq",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.11,<3.15",
    classifiers=[
        "Intended Audience :: Education",
        "Intended Audience :: Science/Research",
        "Natural Language :: French",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Programming Language :: Python :: 3.14",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    packages=packages(),
    py_modules=[] if PREFIX else DEPRECATED,
    package_data=package_data,
    install_requires=INSTALL_REQUIRES,
    extras_require=EXTRAS,
    entry_points={"console_scripts": CONSOLE_SCRIPTS if PREFIX else [*CONSOLE_SCRIPTS, *DEPRECATED_SCRIPTS]},
    cmdclass={"build_py": EditableOnly},
)
