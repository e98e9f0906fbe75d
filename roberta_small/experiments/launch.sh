#!/bin/sh
# Start `roberta-small "$@"` from any working directory. train.sh and pretrain.sh call this.
# The interpreter is PYTHON if set, else .venv beside the scripts, else python3.
root=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "$0")")/../.." && pwd) || exit 1
python=${PYTHON:-$root/.venv/bin/python}
if [ -z "${PYTHON:-}" ] && [ ! -x "$python" ]; then python=python3; fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "error: $python is not a Python 3.11 or newer; create .venv (see README.md) or set PYTHON" >&2
    exit 1
fi
# -P: a random.py in the user's folder must not be imported instead of the real one.
exec "$python" -P -m roberta_small "$@"
