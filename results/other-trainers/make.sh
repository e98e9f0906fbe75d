#!/bin/sh
# Trains the runs again, below the folder where it is started, which holds cls-books/; see README.md.
set -eu
here=$(dirname "$0")
export OMP_NUM_THREADS=1
for lr in 1e-3 3e-3; do
    for seed in 1 2; do
        mkdir -p fairseq-json/tiny-lr$lr
        fairseq-train cls-books/tiny --task sentence_prediction --criterion sentence_prediction --num-classes 2 \
            --init-token 0 --separator-token 2 --max-positions 64 --shorten-method truncate \
            --arch roberta --encoder-layers 1 --encoder-embed-dim 32 --encoder-ffn-embed-dim 32 \
            --encoder-attention-heads 2 --dropout 0 --attention-dropout 0 \
            --optimizer adam --lr $lr --batch-size 16 --max-epoch 3 --seed $seed --cpu --no-save \
            --num-workers 0 --valid-subset valid,test --log-interval 25 --log-format json \
            --tensorboard-logdir fairseq/tiny-lr$lr/$seed --log-file fairseq-json/tiny-lr$lr/$seed.log
        python "$here/trainer.py" $lr $seed
    done
done
