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
mkdir -p "$wheels" "$scratch/sdist" "$scratch/fairseq"
"$python" -m venv "$scratch/venv"
pip="$scratch/venv/bin/python -m pip --disable-pip-version-check --quiet"
$pip install 'setuptools<82' wheel cython 'numpy>=2'

# As `roberta-small install-fairseq` builds it: fairseq's setup.py imports a stand-in of torch.
"$scratch/venv/bin/python" -c "from roberta_small.common.install_fairseq import write_stand_in; write_stand_in('$scratch/stand-in')"
export PYTHONPATH="$scratch/stand-in"
$pip download --no-deps --no-binary :all: --no-build-isolation --dest "$scratch/sdist" "$(pinned fairseq-fixed)"
tar xzf "$scratch"/sdist/*.tar.gz -C "$scratch/fairseq" --strip-components 1
find "$scratch/fairseq/fairseq/examples" -mindepth 1 -delete # most of the size of the wheel, used by nothing here
$pip wheel --no-deps --no-build-isolation --wheel-dir "$wheels" "$scratch/fairseq"
unset PYTHONPATH

# shellcheck disable=SC2046  # a word for each package
$pip wheel --no-deps --no-build-isolation --wheel-dir "$wheels" $(pinned antlr4-python3-runtime)
$pip download --no-deps --only-binary :all: --dest "$wheels" 'setuptools<82' \
    $(pinned bitarray google-crc32c hydra-core omegaconf sentencepiece tensorboardX)
du -ch --apparent-size "$wheels"/*.whl | tail -n 1
