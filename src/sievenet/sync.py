"""The client library without async: `sievenet.sync.connect`."""

from sievenet.client.sync import SyncFeed, SyncNode, connect

__all__ = ["SyncFeed", "SyncNode", "connect"]
