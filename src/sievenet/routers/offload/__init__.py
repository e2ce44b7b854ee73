"""Offloading: clients compute the covering relations that their router needs to place new filters.

    vectors       the table cut along its layers into vectors, kept up to date change by change
    messages      what router and client say
    worker        the client's side
    reputation    what answers are worth: majorities, strikes against the silent and the lying
    rto           the router's side of routing table offloading
    choice        whether it pays
    fixed         the fixed-filterset protocol (FF)
    notation      filters as clients are sent them
    disguise      filters in a form that tells clients how they relate, and nothing else

None of this knows a socket or an event loop, and time is an argument. `rto` measures what its work costs by a function
that it is given, since whether offloading pays depends on it. `shell` is the exception: sockets around it, for
measuring (`benchmarks/offload.py`) and for worker processes.
"""
