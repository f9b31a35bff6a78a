"""Parses Python literals in settings, where fairseq calls ``eval``.

A string that `parse_literal` accepts is safe for ``eval``: it evaluates to the same value and runs no code.
"""

from __future__ import annotations

import ast
from typing import Any

#: settings that fairseq evaluates, with `eval` or with its functions that call it
EVALUATED = frozenset(
    {
        *("adam_betas", "adamax_betas", "adafactor_eps", "lamb_betas", "wer_args", "model_overrides"),
        *("adaptive_input_cutoff", "adaptive_softmax_cutoff", "character_filters", "override_encoder_layers"),
        *("conv_feature_layers", "conv_aggregator_layers", "feature_encoder_spec", "xformers_att_config"),
        *("encoder_layers", "encoder_attention", "encoder_xformers_att_config"),
        *("decoder_layers", "decoder_attention", "decoder_xformers_att_config", "decoder_zero_init"),
        *("self_attention", "project_input", "gated_attention", "downsample", "pretrained"),
        *("left_pad_source", "left_pad_target"),
        *("pipeline_balance", "pipeline_encoder_balance", "pipeline_decoder_balance"),
        *("pipeline_devices", "pipeline_encoder_devices", "pipeline_decoder_devices"),
        # only in fairseq's examples
        *("conv_enc_config", "conv_dec_config", "vggblock_enc_config", "transformer_enc_config"),
        *("transformer_dec_config", "transformer_context", "transformer_sampling"),
    }
)

_MAX_CHARACTERS = 100_000
_MAX_ITEMS = 10_000


def parse_literal(text: str) -> Any:
    """Parses a Python literal.

    Lists and tuples may also be repeated and joined, as in configurations of convolutions:
    ``[(512, 3)] * 4 + [(1024, 3)]``.

    Raises:
        ValueError: it is not a literal, or too large.
    """
    try:
        if len(text) > _MAX_CHARACTERS:
            raise ValueError
        return _value(ast.parse(text.lstrip(" \t"), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        shown = text if len(text) <= 200 else f"{text[:200]}..."
        raise ValueError(f"{shown!r} is not a literal, such as 'True' or '[(512, 3)] * 4'") from None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.BinOp) and isinstance(node.left, ast.List | ast.Tuple | ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        if isinstance(left, list | tuple):
            if isinstance(node.op, ast.Mult) and isinstance(right, int) and len(left) * right <= _MAX_ITEMS:
                return left * right
            if isinstance(node.op, ast.Add) and len(left) + len(right) <= _MAX_ITEMS:
                return left + right
            raise ValueError
    return ast.literal_eval(node)
