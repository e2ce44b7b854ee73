"""Levels in the making: the compiled code that files records in blocks.  For `matcher` only."""
