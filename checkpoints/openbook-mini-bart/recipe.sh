#!/bin/sh
# Makes openbook-mini-bart: sh recipe.sh DATA BASE [WORK]. docs/training.md says what lies in DATA, and what BASE is.
# What is done is left out, so the same call goes on after a kill.
set -eu
data=$1 base=$2 work=${3:-runs/openbook-mini-bart}
mkdir -p "$work"

# train NAME PARAGRAPHS OPTION...
train() {
    name=$1 paragraphs=$2
    shift 2
    test -d "$work/$name" || openbook train "$work/$name" --work "$work/states-$name" --worlds 2 \
        --paragraphs "$data/$paragraphs.jsonl" --questions "$data/questions.jsonl" \
        --passages "$data/passages.jsonl" "$@"
}

# mean NAME A B
mean() {
    test -d "$work/$1" || openbook checkpoint average "$work/$1" "$work/$2" "$work/$3"
}

train reader paragraphs --base "$base" --unanswerable "$data/unanswerable.jsonl" --sentences "$data/sentences.jsonl" \
    --reading-steps 4500 --joint-steps 0 --evaluate-every 500 \
    --set reading.encoder_rate=1.2e-4 --set reading.decoder_rate=3e-4 --set reading.guidance=0.05
train joint paragraphs --base "$work/reader" --unanswerable "$data/unanswerable.jsonl" \
    --sentences "$data/sentences.jsonl" --reading-steps 0 --joint-steps 200 --evaluate-every 100 --set joint.silence=0.5
mean generator joint reader
train retriever found --base "$work/generator" --reading-steps 0 --joint-steps 0 --retrieval-steps 200
mean openbook-mini-bart generator retriever
openbook calibrate "$work/openbook-mini-bart" --indexes "$data/indexes" --work "$work/calibrate" --dtype bfloat16 \
    --sample 286 --book nq="$data/nq.dev.jsonl" --book almanac="$data/almanac.dev.jsonl" \
    --book squad="$data/squad.dev.jsonl"
