"""Content becomes bits: cells and dz, index plans, encoding, addresses, tuning kernels.

Start with `dz` (nested subspaces), `cell` (any mask), then `plan` (how a schema's
content becomes bits).  Imports `errors` and `content` only.
"""

from sievenet.index.cell import Cell
from sievenet.index.cellset import CellSet
from sievenet.index.codes import Codes
from sievenet.index.dz import FIELD, MAX_BITS, ROOT, Dz
from sievenet.index.dzset import DzSet

__all__ = ["FIELD", "MAX_BITS", "ROOT", "Cell", "CellSet", "Codes", "Dz", "DzSet"]
