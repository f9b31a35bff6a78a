"""Attention with a position encoding.

=========================  ===========================================================================================
:mod:`.core`               ``attend``: checks its arguments, applies the encoding's ``transform``, calls a backend
:mod:`.module`             fairseq's attention modules: projections and the cache of keys and values around ``attend``
:mod:`.backends`           the implementations of attention, which all compute the same result
:mod:`.flex_kernel`        a wrapper of PyTorch's FlexAttention, for one of the backends
:mod:`.flex_on_cpu`        whether FlexAttention compiles on a CPU, and what avoids PyTorch's errors there
:mod:`.learned_mask`       the fused kernel with a gradient for its mask, and softmax in single precision
:mod:`.masks`              padding and causal masks, in the forms that backends need
:mod:`.positions`          positions and distances of queries and keys; caches for one pass and for one generation
:mod:`.key_value_cache`    the cached keys and values of incremental decoding
:mod:`.observing`          shows the logits and weights of every layer to an observer
=========================  ===========================================================================================

This file imports nothing, to avoid a cycle: encodings import some of these modules, and others import the encodings'
base class.
"""
