"""The broker overlay: routers in software, for networks without programmable switches and between those that have them.

    poset, forest             routing tables: filters by their covering relation
    schemes, refinement       what a router tells its neighbours of them
    bounds                    which filters can cover which, many at a time
    overlay                   the overlay as a router knows it: link states, the tree, shortest paths
    tree, cbcb, bdrp, edge    schemes at work in a router
    readiness, settlement     whether tables are complete while the overlay changes, and who has been told
    carriage, retransmission  events: by the tables or to everybody, once, and again when a link breaks
    core                      the router itself: a message and the time in, messages out
    intake, offload/          how filters enter the tables: at once, or placed by willing clients (RTO, FF)
    bloom/                    routing by Bloom filters: bfposet, bftree, sbstree, edge routing
    protocol, server          the wire, and the process around the core

Import from the modules; this package loads none of them.

Imports only `access`, `content`, `errors`, `matcher`, `session`, `simulation` and `transport`.
"""
