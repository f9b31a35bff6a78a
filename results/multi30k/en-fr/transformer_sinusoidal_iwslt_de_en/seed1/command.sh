#!/usr/bin/env bash
set -euo pipefail
export OMP_NUM_THREADS=1
export MALLOC_MMAP_MAX_=0
export MALLOC_TRIM_THRESHOLD_=1099511627776
export MALLOC_TOP_PAD_=268435456
exec python -m fairseq_cli.train data/multi30k/en-fr/prepared/binarized --user-dir fairseq_posenc --task translation --source-lang en --target-lang fr --required-batch-size-multiple 1 --arch transformer_sinusoidal_iwslt_de_en --log-format json --data-buffer-size 0 --update-epoch-batch-itr True --encoder-layers 3 --decoder-layers 3 --encoder-embed-dim 128 --decoder-embed-dim 128 --encoder-ffn-embed-dim 512 --decoder-ffn-embed-dim 512 --encoder-attention-heads 4 --decoder-attention-heads 4 --share-all-embeddings --encoder-normalize-before --decoder-normalize-before --dropout 0.1 --max-tokens 750 --max-update 11900 --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer adam --adam-betas '(0.9, 0.98)' --lr 3e-3 --lr-scheduler polynomial_decay --warmup-updates 800 --total-num-update 11900 --end-learning-rate 1e-5 --no-epoch-checkpoints --update-freq 1 --distributed-world-size 1 --cpu --seed 1 --save-dir output/multi30k/en-fr/transformer_sinusoidal_iwslt_de_en/seed1/checkpoints
