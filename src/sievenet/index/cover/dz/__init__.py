"""The search for covers by dz: the plan's order of bits decides where a piece is halved.

Kernels only: use `sievenet.index.cover`.
"""
