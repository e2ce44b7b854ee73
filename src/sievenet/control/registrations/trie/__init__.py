"""The prefix tree of registrations: who wants and who offers which dz, in arrays, with what follows for switches."""

from sievenet.control.registrations.trie.layout import Told
from sievenet.control.registrations.trie.puts import Puts
from sievenet.control.registrations.trie.trie import Trie

__all__ = ["Puts", "Told", "Trie"]
