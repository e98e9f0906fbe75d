#!/bin/sh
# Pre-train roberta_small as a masked language model. ./pretrain.sh --help
exec "$(dirname -- "$(readlink -f -- "$0")")/sweep/launch.sh" pretrain "$@"
