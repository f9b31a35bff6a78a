#!/usr/bin/env bash
set -euo pipefail
export OMP_NUM_THREADS=1
export MALLOC_MMAP_MAX_=0
export MALLOC_TRIM_THRESHOLD_=1099511627776
export MALLOC_TOP_PAD_=268435456
exec python -P -m fairseq_cli.train data/quickstart-short/xa-xb/prepared/binarized --user-dir fairseq_posenc --task translation --source-lang xa --target-lang xb --required-batch-size-multiple 1 --arch transformer_learned_tiny --log-format json --data-buffer-size 0 --update-epoch-batch-itr True --encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 64 --decoder-embed-dim 64 --encoder-ffn-embed-dim 256 --decoder-ffn-embed-dim 256 --encoder-attention-heads 4 --decoder-attention-heads 4 --share-decoder-input-output-embed --encoder-normalize-before --decoder-normalize-before --dropout 0 --max-tokens 1000 --max-update 830 --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer adam --adam-betas '(0.9, 0.98)' --lr 6e-3 --lr-scheduler polynomial_decay --warmup-updates 80 --total-num-update 830 --end-learning-rate 1e-5 --log-interval 50 --num-workers 0 --no-epoch-checkpoints --position-augmentation shift --position-augmentation-max 10 --update-freq 1 --distributed-world-size 1 --cpu --seed 1 --save-dir output/quickstart-short/xa-xb/transformer_learned_tiny-position-augmentation-shift-position-augmentation-max-10/seed1/checkpoints
