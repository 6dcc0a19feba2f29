#!/bin/sh
# Makes openbook-mini: sh recipe.sh DATA [WORK]. The card says what lies in DATA.
# What is done is left out, so the same call goes on after a kill.
set -eu
data=$1 work=${2:-runs/openbook-mini}
mkdir -p "$work"

# train NAME STEPS ENCODER_RATE HEAD_RATE OPTION...
train() {
    name=$1 steps=$2 encoder=$3 head=$4
    shift 4
    test -d "$work/$name" || openbook train "$work/$name" --work "$work/states-$name" \
        --paragraphs "$data/$name.jsonl" --unanswerable "$data/$name.silent.jsonl" --dev "$data/dev.jsonl" \
        --reading-steps "$steps" --joint-steps 0 --dtype float32 --set reading.near=0 --set reading.warm_up=50 \
        --set reading.encoder_rate="$encoder" --set reading.decoder_rate="$head" "$@"
}

train first "${STEPS_FIRST:-500}" 2e-4 1e-3 --question-encoder openbook-mini-bart
train second "${STEPS_SECOND:-1150}" 1.6e-4 6e-4 --base "$work/first" --seed 1
train third "${STEPS_THIRD:-360}" 8e-5 3e-4 --base "$work/second" --seed 3 --processes 2 \
    --set reading.warm_up=20
train fourth "${STEPS_FOURTH:-540}" 8e-5 3e-4 --base "$work/third" --seed 4 --set reading.warm_up=20
train fifth "${STEPS_FIFTH:-120}" 8e-5 3e-4 --base "$work/fourth" --seed 5 --set reading.warm_up=15
train sixth "${STEPS_SIXTH:-270}" 8e-5 3e-4 --base "$work/fifth" --seed 6 --set reading.warm_up=15
# ours was stopped after 250 steps of 500
train seventh "${STEPS_SEVENTH:-250}" 1.2e-4 4e-4 --base "$work/sixth" --seed 8 --set reading.warm_up=20
train eighth "${STEPS_EIGHTH:-480}" 1e-4 3e-4 --base "$work/seventh" --seed 9 --processes 2 \
    --set reading.warm_up=20
after_base="--teacher openbook-base --dtype bfloat16 --train-embeddings --set reading.near=0.5
    --set reading.tokens_per_step=4800 --set reading.warm_up=20"
train ninth "${STEPS_NINTH:-420}" 1.2e-4 3e-4 --base "$work/eighth" --seed 21 $after_base
train tenth "${STEPS_TENTH:-430}" 1e-4 2.5e-4 --base "$work/ninth" --seed 22 $after_base --set reading.taught=0.7
train eleventh "${STEPS_ELEVENTH:-560}" 1.2e-4 3e-4 --base "$work/tenth" --seed 33 --dtype bfloat16 \
    --train-embeddings --set reading.tokens_per_step=4800 --set reading.warm_up=20
test -d "$work/openbook-mini" || openbook checkpoint compose "$work/openbook-mini" --weights int8 \
    --reader "$work/eleventh/reader" --question-encoder openbook-mini-bart
openbook calibrate "$work/openbook-mini" --indexes "$data/indexes" --work "$work/calibrate" --dtype int8 \
    --book restic="$data/restic.dev.jsonl" --book actual="$data/actual.dev.jsonl" \
    --book stroom="$data/stroom.dev.jsonl" --book squad="$data/squad.dev.jsonl"
