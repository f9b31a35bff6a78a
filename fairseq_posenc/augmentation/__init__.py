"""Position augmentation: gives tokens other positions than 0, 1, 2, ... in training.

==========  ===========================================================================================================
``shift``   SHAPE of Kiyono et al. (2021), https://arxiv.org/abs/2109.05644
``random``  randomized positions of Ruoss et al. (2023), https://arxiv.org/abs/2305.16843
``cape``    continuous augmented positions of Likhomanenko et al. (2021), https://arxiv.org/abs/2106.03143
==========  ===========================================================================================================

Each sentence has its own draw, made once per forward pass of a stack, outside its layers: activation checkpointing
repeats the layers, not the draw. Random numbers are from torch's generator, which fairseq seeds for each update, so
that a resumed training draws the same.
"""
