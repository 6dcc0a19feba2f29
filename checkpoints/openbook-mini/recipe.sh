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
test -d "$work/openbook-mini" || openbook checkpoint compose "$work/openbook-mini" --weights int8 \
    --reader "$work/second/reader" --question-encoder openbook-mini-bart
openbook calibrate "$work/openbook-mini" --indexes "$data/indexes" --work "$work/calibrate" --dtype int8 --sample 120 \
    --book nq="$data/nq.dev.jsonl" --book squad="$data/squad.dev.jsonl" --book docs="$data/docs.dev.jsonl"
