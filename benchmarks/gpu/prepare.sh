#!/bin/sh
# Wheels of what a machine with torch and transformers lacks, so that check.sh installs this clone there without a
# network: in benchmarks/gpu/wheels, 6 MB in half a minute. Copy the clone with them.
#
# PYTHON    an interpreter of the other machine's version, with headers (default: python3.12)
#
# To copy less: git sparse-checkout set --no-cone '/*' '!/results/' (undo: git sparse-checkout disable)
set -eu
cd -- "$(dirname -- "$0")/../.."
python=${PYTHON:-python3.12}
wheels=benchmarks/gpu/wheels
"$python" -c 'import sys; print("wheels for Python", sys.version.split()[0])'
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

pinned() { # NAME ...: NAME==VERSION of constraints.txt, one a line
    for name in "$@"; do grep -i "^$name==" constraints.txt; done
}

rm -rf "$wheels"
mkdir -p "$wheels" "$scratch/stub/torch/utils" "$scratch/sdist" "$scratch/fairseq"
"$python" -m venv "$scratch/venv"
pip="$scratch/venv/bin/python -m pip --disable-pip-version-check --quiet"
$pip install 'setuptools<82' wheel cython 'numpy>=2'

# pip runs fairseq's setup.py to read its metadata, and that imports torch.
touch "$scratch/stub/torch/__init__.py" "$scratch/stub/torch/utils/__init__.py"
cat >"$scratch/stub/torch/utils/cpp_extension.py" <<'STUB'
from setuptools import Extension as CppExtension
from setuptools.command.build_ext import build_ext as BuildExtension
STUB
env -u CUDA_HOME PYTHONPATH="$scratch/stub" $pip download --no-deps --no-binary :all: --no-build-isolation \
    --dest "$scratch/sdist" "$(pinned fairseq-fixed)"
tar xzf "$scratch"/sdist/*.tar.gz -C "$scratch/fairseq" --strip-components 1
"$scratch/venv/bin/python" benchmarks/gpu/build_fairseq.py "$scratch/fairseq" "$wheels" >"$scratch/log" 2>&1 ||
    { tail -n 20 "$scratch/log" >&2; exit 1; }

# shellcheck disable=SC2046  # a word for each package
$pip wheel --no-deps --no-build-isolation --wheel-dir "$wheels" $(pinned antlr4-python3-runtime)
$pip download --no-deps --only-binary :all: --dest "$wheels" 'setuptools<82' \
    $(pinned bitarray google-crc32c hydra-core omegaconf sentencepiece tensorboardX)
du -ch --apparent-size "$wheels"/*.whl | tail -n 1
