#!/bin/bash
# Check and measure what needs a GPU: correctness, times, training, comparisons. For about nine minutes.
#
#     benchmarks/gpu/check.sh [STEP ...]      (default: all, in this order)
#
#   machine    GPU, driver, versions
#   tests      pytest -m cuda
#   updates    losses of 20 updates on the GPU against the CPU
#   timing     milliseconds, kernels and waits of an update
#   train      six runs of the reference recipe for an epoch, one of them resumed, and eval on both devices
#   methods    the same with the Transformers Trainer and with LoRA
#   pretrain   a masked language model, and a student of one of the runs
#   floor, finetune, masked-lm, classify, base      comparisons of python -m benchmarks, short
#
# OUT      folder for summary.txt and the logs (default: gpu-output)
# LIMIT    seconds for everything (default: 560); steps that do not fit are skipped
# PYTHON   interpreter (default: python3); with benchmarks/gpu/wheels, the base of a new environment
# DEVICE   cuda, or cpu to test this script with small sizes
set -u
cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." || exit
root=$PWD
out=${OUT:-gpu-output} device=${DEVICE:-cuda} limit=${LIMIT:-560} base=${PYTHON:-python3}
all="machine tests updates timing train methods pretrain floor finetune masked-lm classify base"
steps=" ${*:-$all} "
mkdir -p "$out"
out=$(cd -- "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export base work root device PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1
: >"$out/summary.txt"

step() { # NAME SECONDS COMMAND...: run it if it was requested and fits, and add a line to the summary
    local name=$1 most=$2 begin=$SECONDS code state=ok
    shift 2
    [[ $steps == *" $name "* || $name == install || $name == data ]] || return 0
    [ "$device" = cuda ] || most=$((4 * most))
    [ "$most" -le $((limit - SECONDS)) ] || most=$((limit - SECONDS))
    if [ "$most" -lt 10 ]; then
        state="skipped: no time left"
    else
        timeout --kill-after 5 "$most" "$@" >"$out/$name.txt" 2>&1
        code=$?
        [ $code -eq 0 ] || state="FAILED: exit code $code"
        [ $code -ne 124 ] || state="stopped after $most s"
    fi
    printf '%-10s %4d s  %s\n' "$name" $((SECONDS - begin)) "$state" | tee -a "$out/summary.txt"
}

environment() { # packages of the base, the wheels and this clone; the base stays as it is
    local pip=("$base" -m pip --python "$work/venv/bin/python" --no-cache-dir)
    "$base" -m venv --without-pip "$work/venv" &&
        "$base" -c 'import site; print(*site.getsitepackages(), sep="\n")' >"$work/base.pth" &&
        cp "$work/base.pth" "$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" &&
        "${pip[@]}" install --quiet --no-index --no-deps --force-reinstall "$root"/benchmarks/gpu/wheels/*.whl &&
        "${pip[@]}" install --quiet --no-index --no-deps --no-build-isolation --editable "$root" &&
        "$work/venv/bin/python" -P -c 'import fairseq.tasks, roberta_small.fairseq_plugin, transformers'
}
python=$base
export -f environment
if [ -d benchmarks/gpu/wheels ]; then
    step install 120 bash -c environment
    python=$work/venv/bin/python
fi
export python

data=$work/data dictionary=roberta_small/pretrained/roberta_small_fr/dict.txt weights=roberta_small/pretrained/roberta_small_fr/model.safetensors
export BENCHMARK_SECONDS=90 # of a contender: benchmarks/measure.py
tiny=() collect=() sentences=3200 few="--updates 400" long="--updates 300 --batch-size 32" limits="--max-epoch 1" longer="--max-epoch 2" tokens=300k small=
start="--seeds 1 2 3 --inits random pretrained --pretrained $weights"
tuned="--seeds 1 --inits pretrained --pretrained $weights"
if [ "$device" = cpu ]; then
    tiny=(--tiny) collect=(--collect-only) sentences=64 few="--updates 5" long="--updates 3 --batch-size 1" limits="--max-update 2" longer="--max-update 4" tokens=2k small="--encoder-layers 1"
    start="--seeds 1 --inits random" tuned=$start
    head -n 2000 "$dictionary" >"$work/dict.txt"
    dictionary=$work/dict.txt
    export BENCHMARK_SECONDS=600 OMP_NUM_THREADS=1 # more threads wait for each other on a busy machine
fi
export data limits longer start tuned tokens small
step data 60 "$python" -m benchmarks.gpu.data "$dictionary" "$data" --train "$sentences"

machine() {
    if [ "$device" = cuda ]; then nvidia-smi || return; fi
    nproc
    free -g | head -2
    "$python" -m torch.utils.collect_env
}
train() { # OUT WORDS...
    "$python" -P -m roberta_small train --data "$data/reviews" --device "$device" --out "$@" -- $limits
}
trained() {
    train "$work/runs" $start && limits=$longer train "$work/runs" --seeds 1 --inits random || return
    for place in "$device" cpu; do
        "$python" -P -m roberta_small evaluate --checkpoint "$work"/runs/fairseq/*/seed1 --data "$data/reviews" \
            --device "$place" --precision fp32 --draws 100 || return
    done
}
methods() {
    train "$work/trainer" --method transformers --seeds 1 --inits random --precision bf16 &&
        train "$work/lora" --method lora $tuned --precision bf16
}
pretrained() {
    pretrain "$work/lm" && pretrain "$work/student" --teacher "$work/runs/fairseq/random/seed1"
}
pretrain() { # OUT WORDS...
    "$python" -P -m roberta_small pretrain --data "$data/corpus" --tokens "$tokens" --device "$device" --out "$@" -- --required-batch-size-multiple 1 $small
}
export -f machine train trained methods pretrain pretrained
step machine 60 bash -c machine
step tests 150 "$python" -m pytest -m cuda "${collect[@]}" -rA -p no:cacheprovider tests/fairseq_plugin
step updates 100 "$python" -m benchmarks.gpu.checks updates "$data" --device "$device" "${tiny[@]}" --out "$out"
step timing 200 "$python" -m benchmarks.gpu.checks timing "$data" --device "$device" "${tiny[@]}" --out "$out"
step train 160 bash -c trained
step methods 120 bash -c methods
step pretrain 90 bash -c pretrained

compare() { # NAME SECONDS WORDS...
    local name=$1 most=$2
    shift 2
    step "$name" "$most" "$python" -m benchmarks "$@" --quick --rounds 1 --data "$data/reviews" \
        --corpus "$data/corpus" --device "$device" --out "$out/bench-$name"
}
compare floor 60 floor
compare finetune 120 finetune $few
compare masked-lm 110 masked-lm
compare classify 110 classify
compare base 150 finetune --size base $long

grep -h '^ok  \|^FAIL\|^     [^ ]' "$out/updates.txt" "$out/timing.txt" 2>/dev/null
grep -h 'passed\|failed' "$out/tests.txt" 2>/dev/null
cat "$out"/bench-*/benchmarks.md 2>/dev/null | grep '^|'
! grep -q 'FAILED\|stopped' "$out/summary.txt"
