"""Attention with a position encoding.

=========================  ===========================================================================================
:mod:`.core`               ``attend``, the product: checks, the encoding's ``transform``, a backend
:mod:`.module`             fairseq's attention modules around it: projections, and keys and values of earlier steps
:mod:`.backends`           the ways to compute it, which all give the same
:mod:`.flex_kernel`        PyTorch's FlexAttention, for one of them
:mod:`.masks`              padding and the future, in the forms that backends need
:mod:`.positions`          where queries and keys stand; caches for one pass and for one generation
:mod:`.key_value_cache`    keys and values over the steps of a generation
:mod:`.observing`          logits and weights of every layer, seen from outside
=========================  ===========================================================================================

Nothing is imported here, since encodings import some of these modules, and others import the encodings' contract.
"""
