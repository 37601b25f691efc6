#!/bin/sh
# The packaged compatibility adapter of SmolLM2-135M-Instruct: three trainings, each from the last.
#
#     RATIONALES_DATA=DIR sh recipes/smollm2_adapter.sh OUT
#
# DIR holds wikitext2/train.raw. The adapter is then in OUT/adapter. An interrupted script resumes
# when it is given again. STEPS=2 tries it in short; MODEL takes another model.
set -eu
out=${1:?give the folder of the runs}
model=${MODEL:-smollm2-135m-instruct}

compat_train() { # minutes, then the options that differ
    if [ -n "${STEPS:-}" ]; then length="--steps $STEPS"; else length="--minutes $1"; fi
    shift
    # shellcheck disable=SC2086  # the length is two words
    ${RATIONALES:-rationales} compat train --model "$model" \
        --text "${RATIONALES_DATA:?set it to the folder of the data}/wikitext2/train.raw" --text self \
        --distribution log-uniform-length --loss distill --method lora --lora-rank 16 --lora-alpha 32 \
        --warmup 0.05 --length 96 --batch 8 --micro-batch 8 --dtype float32 $length "$@"
}

compat_train 75 --mixture 0.6 --learning-rate 0.001 --self-share 0.4 --self-rows 384 \
    --seed 0 --out "$out/adapter2"
compat_train 26 --mixture 0.3 --learning-rate 0.0005 --self-share 0.5 --self-rows 384 \
    --seed 1 --start "$out/adapter2" --out "$out/adapter3"
compat_train 42 --mixture 0.5 --full-weight 6 --learning-rate 0.0007 --self-share 0.5 --self-rows 512 \
    --seed 2 --start "$out/adapter3" --out "$out/adapter"
