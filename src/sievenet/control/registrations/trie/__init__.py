"""The prefix tree of registrations: who wants and who offers which dz, in arrays, with what follows for switches."""

from sievenet.control.registrations.trie.puts import Puts
from sievenet.control.registrations.trie.trie import Lookup, Trie

__all__ = ["Lookup", "Puts", "Trie"]
