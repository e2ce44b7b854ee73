"""What the system runs on, as values: topologies, spanning trees, flows, flow tables.

Nothing here acts or waits.  `control` decides with these values, `dataplane` carries
them out.

Imports only `errors` and `index`.
"""

from sievenet.network.files import dump_topology, load_topology, read_topology
from sievenet.network.flow import (
    MAX_CATEGORY,
    TOP_PRIORITY,
    Add,
    Delete,
    Flow,
    FlowChange,
    FlowKey,
    Match,
    Modify,
)
from sievenet.network.link import PERFECT, Link, LinkSettings, link_id, natural
from sievenet.network.shapes import (
    SHAPES,
    Clos,
    FatTree,
    FromFile,
    Line,
    Random,
    Ring,
    Shape,
    Star,
    Testbed,
    Tree,
    parse_topology,
)
from sievenet.network.table import EMPTY_TABLE, FlowTable, difference, make_before_break
from sievenet.network.topology import CLIENT_PORTS, Attachment, Topology, TopologyBuilder
from sievenet.network.tree import SpanningTree, spanning_trees

__all__ = [
    "CLIENT_PORTS",
    "EMPTY_TABLE",
    "MAX_CATEGORY",
    "PERFECT",
    "SHAPES",
    "TOP_PRIORITY",
    "Add",
    "Attachment",
    "Clos",
    "Delete",
    "FatTree",
    "Flow",
    "FlowChange",
    "FlowKey",
    "FlowTable",
    "FromFile",
    "Line",
    "Link",
    "LinkSettings",
    "Match",
    "Modify",
    "Random",
    "Ring",
    "Shape",
    "SpanningTree",
    "Star",
    "Testbed",
    "Topology",
    "TopologyBuilder",
    "Tree",
    "difference",
    "dump_topology",
    "link_id",
    "load_topology",
    "make_before_break",
    "natural",
    "parse_topology",
    "read_topology",
    "spanning_trees",
]
