"""Kernels: attention in O(T) memory, forward and backward, by tiles of rows and keys.

`fused` holds the loop, an autograd function; `additive` and `dot` say how a tile's scores are made
and what their gradients are; `table` adds a bias over offsets; `threads` shares out what is
compiled by Numba, `exponential` and `compiled` serve it; `scratch` is memory that is used again.
"""
