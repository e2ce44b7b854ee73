"""The prefix tree of registrations: who wants and who offers which dz, in arrays, with what follows for switches."""

from sievenet.control.registrations.tree.tree import Found, Tree

__all__ = ["Found", "Tree"]
