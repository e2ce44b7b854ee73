"""Exact matching of events, in batches and one by one, against very many subscriptions.

Import `Matcher` from here, and the values it answers with.  To
understand it read `level` (how filters are filed), then `lines` (why comparing whole numbers is exact), then `matcher`.
Compiled code is in `records` (filters as whole numbers), `construction` (of levels), `blocks` and
`scan` (events against levels).

Imports only `content`, `errors` and `jit`.
"""

from sievenet.matcher.matcher import Matcher
from sievenet.matcher.matches import LevelStatistics, Matches, Statistics

__all__ = ["LevelStatistics", "Matcher", "Matches", "Statistics"]
