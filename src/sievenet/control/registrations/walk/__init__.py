"""Compiled walks over a tree of registrations: what changed, and the table of one switch."""
