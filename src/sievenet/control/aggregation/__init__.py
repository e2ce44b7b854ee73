"""Which entries to merge, for the whole network at once: FA-LB and FA-PB of PLEROMA, on plain arrays."""

from sievenet.control.aggregation.aggregation import Sample, Source, Table, Tables, aggregate

__all__ = ["Sample", "Source", "Table", "Tables", "aggregate"]
