"""Routing by Bloom filters (Jerzak and Fetzer): `bfposet` turns events into bits, `trees` find the interfaces.

A subscription is the bits of its constraints; an event has the bits of every constraint that it satisfies. So an event
that matches a subscription has all of its bits; the converse may fail, which costs a needless message, never a lost
one.
"""
