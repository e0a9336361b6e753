"""Kernels: attention in O(T) memory, forward and backward, by blocks of rows.

`fused` holds the loop, an autograd function; `additive` and `dot` say how a block's scores are made
and what their gradients are; `softmax` turns scores into weights; `threads` shares out the work.
"""
