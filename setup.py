"""What the project is, what it needs and why. `make install` is the documented way in.

The rooms of the house have generic names (`common`, `analysis`, ...), as their commands are
`python -m analysis` in a clone. Copied into site-packages they would shadow other people's
modules, so the project is installed from its clone, editable, into the clone's own `.venv`;
a copying install stops and says so.
"""

from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOMS = [
    "analysis",
    "benchmarks",
    "common",
    "eval",
    "experiments",
    "export",
    "fairseq_plugin",
    "preprocess",
]

INSTALL_REQUIRES = [
    # fairseq is missing here on purpose: its distribution (fairseq-fixed) asks for torchaudio,
    # which nothing uses and which breaks `import transformers` where it does not match torch.
    # `make install` builds it with --no-deps against the torch that is there; the ones it
    # needs follow.
    "bitarray",
    "cffi",
    "cython",
    "hydra-core==1.3.2",
    "regex",
    "sacrebleu>=1.4.12",
    "scikit-learn",
    "scipy",
    # Ours.
    "torch",  # the model
    "numpy>=2",  # binarized data, statistics
    "omegaconf==2.3.0",  # fairseq's configurations, inside checkpoints too
    "safetensors",  # weights to give away: half the size, no code
    "sentencepiece",  # text to pieces
    "tensorboard",  # the logs: written by fairseq, parsed by analysis
    "google-crc32c",  # checks the checksums of logs; in Python that takes 100 times longer
    "pandas",  # the long table and all that is made of it
    "matplotlib",  # figures
    "tqdm",  # progress
]
EXTRAS = {
    "test": [
        "pytest",
        "pytest-xdist",  # the tests on all cores
        "ruff",
        "statsmodels",  # the independent implementation of our statistics: power, Holm, Wilson, McNemar
    ],
    "hf": [
        "transformers",  # the same model there; to use beside fairseq: the two must import together
        "accelerate",  # without it, the Transformers Trainer refuses to train
        "peft",  # LoRA
        "onnx",  # export: the file format,
        "onnxscript",  # what torch.onnx writes it with,
        "onnxruntime",  # and what checks, quantizes and runs it
    ],
    "4bit": [
        "bitsandbytes",  # python -m hf lora causal --precision 4bit; not installed by make install (125 MB)
    ],
    "explain": [
        "captum",  # integrated gradients: which words drove a decision (python -m eval predict --explain)
    ],
    "bench": [
        "tbparse",  # the usual readers of many TensorBoard logs
        "tensorboard-reducer",
    ],
}
CONSOLE_SCRIPTS = [
    "roberta-small-preprocess = preprocess.__main__:main",
    "roberta-small-baseline = experiments.methods.tfidf.run:main",
    "roberta-small-hf = export.__main__:main",
    "roberta-small-sweep = experiments.__main__:main",
    "roberta-small-analysis = analysis.__main__:main",
    "roberta-small-eval = eval.__main__:main",
    "roberta-small-parameters = fairseq_plugin.models.parameters:main",
]


class EditableOnly(build_py):
    """Refuse to copy packages with generic names into an environment."""

    def run(self) -> None:
        """Build, if this is an editable install."""
        if not self.editable_mode:
            raise SystemExit(
                "error: this project runs from its clone and would put packages named "
                f"{', '.join(ROOMS)} into your environment; use `make install`, "
                "or `pip install --editable .` in an environment of its own"
            )
        super().run()


setup(
    name="fairseq-roberta-small",
    version="0.1.0",
    description="Train, compare and trust small RoBERTa sentence classifiers in fairseq",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.11,<3.13",
    classifiers=[
        "Intended Audience :: Education",
        "Intended Audience :: Science/Research",
        "Natural Language :: French",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    packages=find_packages(include=[pattern for room in ROOMS for pattern in (room, f"{room}.*")]),
    package_data={"eval": ["*.html"], "analysis.report": ["assets/*"], "experiments": ["*.sh"]},
    install_requires=INSTALL_REQUIRES,
    extras_require=EXTRAS,
    entry_points={"console_scripts": CONSOLE_SCRIPTS},
    cmdclass={"build_py": EditableOnly},
)
