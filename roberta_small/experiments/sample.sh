#!/bin/sh
# The whole experiment on the generated sample, without a download: text, tokenizer, data folders,
# pre-training, six fine-tuning runs, two tables and a figure. Every step is a command that a user
# can type; finished steps are skipped.
#
#     roberta_small/experiments/sample.sh [DATA [RUNS]]          (make sweep: data/sample data/sample/runs)
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "$0")")/../.." && pwd)
cd "$root"
data=${1:-data/sample}
runs=${2:-data/sample/runs}
python=${PYTHON:-.venv/bin/python}
if [ -z "${PYTHON:-}" ] && [ ! -x "$python" ]; then python=python3; fi
export PYTHON="$python"

sizes="--encoder-layers 2 --encoder-embed-dim 256 --encoder-ffn-embed-dim 256" # of the recipes sample*.txt

step() { printf '\n== %s\n' "$*"; }

step "Text: a generated corpus of French book reviews"
if [ ! -e "$data/text/sample.json" ]; then
    "$python" -m roberta_small.preprocess.sample --out "$data/text"
fi

step "Data: a new tokenizer, text for pre-training, and reviews"
"$python" -m roberta_small prepare --corpus "$data/text/corpus.train.txt" --valid "$data/text/corpus.valid.txt" \
    --protect "$data/text/valid.input0" "$data/text/test.input0" --vocabulary-size 1300 --out "$data/corpus"
"$python" -m roberta_small prepare "$data/text/train.input0" --valid "$data/text/valid.input0" \
    --test "$data/text/test.input0" --tokenizer "$data/corpus" --out "$data/reviews"

step "Pre-training: PPMI-SVD initialization, then a masked language model"
if [ ! -e "$data/warm.pt" ]; then
    "$python" -m roberta_small.fairseq_plugin.checkpoints.ppmi_svd "$data/corpus" --window 40 --out "$data/warm.pt" $sizes
fi
./pretrain.sh --data "$data/corpus" --out "$data/pretrained" --recipe sample-pretrain --start "$data/warm.pt"

step "Fine-tuning: two initializations, three seeds"
./train.sh --data "$data/reviews" --pretrained "$data/pretrained/model.pt" --recipe sample --out "$runs"

step "Tables and figure"
"$python" -m roberta_small tables "$runs" --out "$runs/report"
"$python" -m roberta_small figures "$runs" --out "$runs/report" --chance 50
