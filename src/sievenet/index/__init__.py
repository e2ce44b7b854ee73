"""Content becomes bits: cells and dz, index plans, encoding, addresses.

Start with `dz` (nested subspaces), `cell` (any mask), then `plan` (how a schema's content
becomes bits) and `cover` (how a filter becomes few entries).  Compiled kernels are imported
on first use, so importing this package is quick.

Imports only `content`, `errors` and `jit`.
"""

from sievenet.index.axis import Axis
from sievenet.index.cell import Cell
from sievenet.index.cellset import CellSet
from sievenet.index.code import CODE_BITS, MAX_BITS
from sievenet.index.codes import Codes
from sievenet.index.density import Density
from sievenet.index.dz import ROOT, Dz
from sievenet.index.dzset import DzSet
from sievenet.index.plan import DEFAULT_BUDGET, MAX_BUDGET, Plan
from sievenet.index.region import Bound, Region

__all__ = [
    "CODE_BITS",
    "DEFAULT_BUDGET",
    "MAX_BITS",
    "MAX_BUDGET",
    "ROOT",
    "Axis",
    "Bound",
    "Cell",
    "CellSet",
    "Codes",
    "Density",
    "Dz",
    "DzSet",
    "Plan",
    "Region",
]
