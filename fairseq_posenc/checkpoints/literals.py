"""The settings that fairseq passes to ``eval``, and the literals that they may be."""

from __future__ import annotations

import ast

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

#: the syntax of literals, and of lists that are repeated and joined; none of it names or calls anything
_SYNTAX = (
    *(ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Load),
    *(ast.UnaryOp, ast.UAdd, ast.USub, ast.BinOp, ast.Add, ast.Mult),
)


def is_literal(text: str) -> bool:
    """Whether a text is a Python literal, so that ``eval`` runs no code.

    Lists and tuples may also be repeated and joined, as in configurations of convolutions:
    ``[(512, 3)] * 4 + [(1024, 3)]``.
    """
    try:
        tree = ast.parse(text.lstrip(" \t"), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return all(isinstance(node, _SYNTAX) for node in ast.walk(tree))
