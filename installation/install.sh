#!/bin/sh
# Create .venv and install the project with its dependencies into it. `make install` calls this.
#
# PYTHON  the interpreter; if not set: python3, else another Python in PATH, else one from uv
# TORCH   the requirement for torch, or the URL of an index that has it
#
# Finished steps take a second each, so that a second call completes an interrupted one.
# pip's output is in .venv/install.log.
set -eu
cd "$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "$0")")/.." && pwd)"
tested_torch=torch==2.13.0 # fairseq and all measurements: tested with this version
torch=${TORCH:-$tested_torch}
python=.venv/bin/python
log=.venv/install.log
begin=$(date +%s)

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

suitable() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' >/dev/null 2>&1
}

version() {
    "$1" -c 'import platform; print(platform.python_version())'
}

needed="Python 3.11, 3.12, 3.13 or 3.14 (Debian: apt install python3-venv python3-dev; or install uv, which provides one)"

# The interpreter that .venv is made from: its name, or "uv".
find_python() {
    if [ -n "${PYTHON:-}" ]; then
        command -v "$PYTHON" >/dev/null || fail "PYTHON=$PYTHON: no such command; set it to $needed"
        suitable "$PYTHON" || fail "PYTHON=$PYTHON is not a supported version; set it to $needed"
        echo "$PYTHON"
        return
    fi
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        if suitable "$name"; then
            echo "$name"
            return
        fi
    done
    if command -v uv >/dev/null; then
        echo uv
        return
    fi
    fail "no supported version of Python here; install $needed"
}

# step NUMBER NAME COMMAND...: the command's output goes to the log.
step() {
    printf '[%s/5] %s ... ' "$1" "$2"
    shift 2
    started=$(date +%s)
    printf '\n$ %s\n' "$*" >>"$log"
    if ! "$@" >>"$log" 2>&1; then
        printf 'failed after %s s\n' "$(($(date +%s) - started))"
        tail -n 20 "$log" >&2
        fail "the last step failed (all output: $log); correct the cause and repeat the command, finished steps are kept"
    fi
    printf '%s s\n' "$(($(date +%s) - started))"
}

pip() {
    "$python" installation/interrupted.py &&
        "$python" -m pip --disable-pip-version-check --no-input install --constraint constraints.txt "$@"
}

# uv installs the same packages several times as fast. It has no settings of pip (mirrors, certificates), so
# that pip takes over where it fails.
fast() {
    "$python" installation/interrupted.py || return
    .venv/bin/uv pip install --python "$python" --constraint constraints.txt "$@" ||
        { echo "uv failed, so pip is used" && pip "$@"; }
}

build_tools() {
    pip uv || echo "uv is not available, so pip is used"
    fast numpy cython setuptools wheel
}

create_venv() {
    rm -rf .venv
    if [ "$from" = uv ]; then
        uv venv --quiet --seed --python 3.13 .venv
    else
        "$from" -m venv .venv
    fi
}

from=$(find_python)
printf 'Installing into .venv: a few minutes; torch is a large download\n'
printf '[1/5] virtual environment ... '
if suitable $python && "$python" -m pip --version >/dev/null 2>&1 &&
    { [ -z "${PYTHON:-}" ] || [ "$(version "$PYTHON")" = "$(version $python)" ]; }; then
    printf 'exists'
else
    create_venv || fail "$from cannot create .venv, see above; it needs $needed"
    printf 'created'
fi
printf ' (Python %s)\n' "$(version $python)"

trap 'printf "interrupted; repeat the command to continue\n" >&2; exit 130' INT

# An index serves the tested version in another build (CPU, CUDA 12.8, ...), whose version number sorts above
# that of PyPI.
case $torch in
*://*) step 2 "torch from $torch" pip --extra-index-url "$torch" "$tested_torch" ;;
*) step 2 "$torch" pip "$torch" ;;
esac
# Without build isolation, fairseq and this project are built with the versions in constraints.txt.
step 3 "build tools" build_tools
step 4 "this project and its dependencies" fast --no-build-isolation --editable '.[test,hf,explain,data,serve]'
# Last, because pip would otherwise replace what fairseq's own metadata require.
step 5 "fairseq (compiled in part)" "$python" -m roberta_small.common.install_fairseq --constraint constraints.txt
"$python" -P -c "import transformers, fairseq" >>"$log" 2>&1 ||
    fail "transformers and fairseq cannot be imported together (see $log)"
printf 'Installed in %s s. Activate it with: . .venv/bin/activate\n' "$(($(date +%s) - begin))"
