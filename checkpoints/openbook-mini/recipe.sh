#!/bin/sh
# Makes openbook-mini: sh recipe.sh DATA BASE [WORK]. docs/training.md says what lies in DATA, and what BASE is.
# What is done is left out, so the same call goes on after a kill.
set -eu
data=$1 base=$2 work=${3:-runs/openbook-mini}
mkdir -p "$work"

# train NAME OPTION...
train() {
    name=$1
    shift
    test -d "$work/$name" || openbook train "$work/$name" --work "$work/states-$name" --worlds 2 \
        --paragraphs "$data/paragraphs.jsonl" --unanswerable "$data/unanswerable.jsonl" \
        --sentences "$data/sentences.jsonl" --questions "$data/questions.jsonl" --passages "$data/passages.jsonl" "$@"
}

train reader --base "$base" --reading-steps 4500 --joint-steps 0 --evaluate-every 500 \
    --set reading.encoder_rate=1.2e-4 --set reading.decoder_rate=3e-4 --set reading.guidance=0.05
train joint --base "$work/reader" --reading-steps 0 --joint-steps 200 --evaluate-every 100 --set joint.silence=0.5
test -d "$work/openbook-mini" || openbook checkpoint average "$work/openbook-mini" "$work/joint" "$work/reader"
openbook calibrate "$work/openbook-mini" --indexes "$data/indexes" --work "$work/calibrate" --dtype bfloat16 \
    --book nq="$data/nq.dev.jsonl" --book almanac="$data/almanac.dev.jsonl"
