"""Filters as records of whole numbers: compiled code that reads, copies and looks up records.  For `matcher` only."""
