#!/bin/sh
# Fine-tune a classifier from each initialization with each seed. ./train.sh --help
exec "$(dirname -- "$(readlink -f -- "$0")")/roberta_small/experiments/launch.sh" train "$@"
