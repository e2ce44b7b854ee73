"""Who wants and who offers which dz, and the flow tables that follow."""

from sievenet.control.registrations.changes import Changes
from sievenet.control.registrations.per_port import PortRegistrations
from sievenet.control.registrations.registrations import Registrations
from sievenet.control.registrations.trie import Puts

__all__ = ["Changes", "PortRegistrations", "Puts", "Registrations"]
