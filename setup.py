"""Package metadata and dependencies, each with its reason. Install with `make install`.

The package names (`common`, `analysis`, ...) are too generic to install globally: they would shadow
modules of other projects. `make install` therefore makes an editable install into the clone's own
`.venv`, and a regular install is refused.
"""

from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

PACKAGES = [
    "analysis",
    "benchmarks",
    "common",
    "eval",
    "experiments",
    "export",
    "fairseq_plugin",
    "preprocess",
]

DEPRECATED = ["baseline", "hf", "sweep"]
"""Old names of commands, kept for this release."""

INSTALL_REQUIRES = [
    # fairseq itself is not listed: its distribution (fairseq-fixed) requires torchaudio, which
    # nothing here uses and which breaks `import transformers` when its version does not match
    # torch. `make install` builds it with --no-deps against the installed torch. Its actual
    # dependencies:
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
    "tqdm",  # progress
]
EXTRAS = {
    "test": [
        "pytest",
        "pytest-xdist",  # parallel tests
        "ruff",
        "statsmodels",  # independent implementation to compare with: power, Holm, Wilson, McNemar
    ],
    "hf": [
        "transformers",  # the same model in Transformers; must be importable together with fairseq
        "accelerate",  # required by the Transformers Trainer
        "peft",  # LoRA
        "onnx",  # export: the file format
        "onnxscript",  # export: used by torch.onnx
        "onnxruntime",  # export: checks, quantizes and runs the file
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
CONSOLE_SCRIPTS = [
    "roberta-small-preprocess = preprocess.__main__:main",
    "roberta-small-sweep = experiments.__main__:main",
    "roberta-small-export = export.__main__:main",
    "roberta-small-analysis = analysis.__main__:main",
    "roberta-small-eval = eval.__main__:main",
    "roberta-small-parameters = fairseq_plugin.models.parameters:main",
    # Deprecated names, kept for this release.
    "roberta-small-baseline = baseline:main",
    "roberta-small-hf = hf:main",
]


class EditableOnly(build_py):
    """Refuse a regular install: the package names are too generic for a shared environment."""

    def run(self) -> None:
        """Build for an editable install."""
        if not self.editable_mode:
            raise SystemExit(
                "error: this project runs from its clone, because its package names "
                f"({', '.join(PACKAGES)}) are too generic to install globally; use `make install`, "
                "or `pip install --editable .` in a separate environment"
            )
        super().run()


setup(
    name="fairseq-roberta-small",
    version="0.1.0",
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
    packages=find_packages(include=[pattern for name in PACKAGES for pattern in (name, f"{name}.*")]),
    py_modules=DEPRECATED,
    package_data={"eval": ["*.html"], "analysis.report": ["assets/*"], "experiments": ["*.sh"]},
    install_requires=INSTALL_REQUIRES,
    extras_require=EXTRAS,
    entry_points={"console_scripts": CONSOLE_SCRIPTS},
    cmdclass={"build_py": EditableOnly},
)
