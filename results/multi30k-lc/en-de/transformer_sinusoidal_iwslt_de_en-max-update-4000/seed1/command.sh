#!/usr/bin/env bash
set -euo pipefail
export PYTHONSAFEPATH=1
export OMP_NUM_THREADS=1
export MALLOC_MMAP_MAX_=0
export MALLOC_TRIM_THRESHOLD_=1099511627776
export MALLOC_TOP_PAD_=268435456
exec python -P -m torch.distributed.run --standalone --nproc_per_node 2 -m fairseq_cli.train data/multi30k-lc/en-de/prepared/binarized --user-dir fairseq_posenc --task translation --source-lang en --target-lang de --required-batch-size-multiple 1 --arch transformer_sinusoidal_iwslt_de_en --log-format json --data-buffer-size 0 --update-epoch-batch-itr True --encoder-layers 4 --decoder-layers 4 --encoder-embed-dim 128 --decoder-embed-dim 128 --encoder-ffn-embed-dim 256 --decoder-ffn-embed-dim 256 --encoder-attention-heads 4 --decoder-attention-heads 4 --share-all-embeddings --dropout 0.3 --max-tokens 4096 --max-update 4000 --patience 10 --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer adam --adam-betas '(0.9, 0.98)' --lr 5e-3 --lr-scheduler inverse_sqrt --warmup-updates 2000 --warmup-init-lr 1e-7 --clip-norm 25 --keep-last-epochs 10 --update-freq 1 --distributed-world-size 2 --cpu --distributed-backend gloo --ddp-backend legacy_ddp --distributed-init-method env:// --distributed-no-spawn --distributed-rank=-1 --seed 1 --save-dir output/multi30k-lc/en-de/transformer_sinusoidal_iwslt_de_en-max-update-4000/seed1/checkpoints
