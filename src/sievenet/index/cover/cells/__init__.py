"""The search for covers by cells: each axis has an atom of its own; split on the axis that saves most.

Kernels only: use `sievenet.index.cover`.
"""
