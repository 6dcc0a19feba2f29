#!/bin/sh
# Makes openbook-base: sh recipe.sh DATA MPNET [WORK]. The card says what lies in DATA; MPNET is the folder of
# all-mpnet-base-v2.
# What is done is left out, so the same call goes on after a kill.
set -eu
data=$1 mpnet=$2 work=${3:-runs/openbook-base}
mkdir -p "$work"

# train NAME STEPS OPTION...
train() {
    name=$1 steps=$2
    shift 2
    test -d "$work/$name" || openbook train "$work/$name" --work "$work/states-$name" \
        --paragraphs "$data/$name.jsonl" --unanswerable "$data/$name.silent.jsonl" --dev "$data/dev.jsonl" \
        --reading-steps "$steps" --joint-steps 0 --dtype bfloat16 "$@"
}

# the rates of our second to ninth stage were not written down: these are the first's, 4e-5, which is the default
train first "${STEPS_FIRST:-660}" --base "$mpnet" --question-encoder openbook-mini-bart \
    --set reading.tokens_per_step=3200 --set reading.frozen_layers=3
before=first seed=1
for stage in second:340 third:200 fourth:300 fifth:280 sixth:320 seventh:280 eighth:1000 ninth:480; do
    name=${stage%:*}
    train "$name" "${STEPS_LATER:-${stage#*:}}" --base "$work/$before" --seed "$seed" \
        --set reading.tokens_per_step=4800 --set reading.frozen_layers=2
    before=$name seed=$((seed + 1))
done
test -d "$work/openbook-base" || openbook checkpoint compose "$work/openbook-base" --weights int8 \
    --reader "$work/ninth/reader" --question-encoder openbook-mini-bart
openbook calibrate "$work/openbook-base" --indexes "$data/indexes" --work "$work/calibrate" --dtype int8 \
    --book restic="$data/restic.dev.jsonl" --book actual="$data/actual.dev.jsonl" \
    --book stroom="$data/stroom.dev.jsonl" --book squad="$data/squad.dev.jsonl"
