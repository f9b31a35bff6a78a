"""Fused attention: PyTorch's FlexAttention, and its fused kernel with a gradient for the mask. No encoding is known."""
