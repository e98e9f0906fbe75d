#!/bin/sh
# Pre-train a language model, masked or left to right. ./pretrain.sh --help
exec "$(dirname -- "$(readlink -f -- "$0")")/roberta_small/experiments/launch.sh" pretrain "$@"
