#!/bin/sh
# The whole experiment on the generated sample, without a download: text, vocabulary, binarized data,
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
    "$python" -m roberta_small sample --out "$data/text"
fi

step "Vocabulary: a SentencePiece model trained on the sample"
if [ ! -e "$data/dict.txt" ]; then
    "$python" -m roberta_small vocabulary --train --overwrite --size 1300 \
        --sentencepiece-model "$data/sentencepiece.model" --out "$data/dict.txt" \
        --text "$data/text/corpus.train.txt" "$data/text/train.input0"
fi

step "Binarized data"
"$python" -m roberta_small binarize --sentencepiece-model "$data/sentencepiece.model" \
    --dict "$data/dict.txt" --trainpref "$data/text/train" --validpref "$data/text/valid" \
    --testpref "$data/text/test" --out "$data/reviews"
"$python" -m roberta_small binarize --sentencepiece-model "$data/sentencepiece.model" \
    --dict "$data/dict.txt" --only-source --trainpref "$data/text/corpus.train.txt" \
    --validpref "$data/text/corpus.valid.txt" --out "$data/corpus"

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
