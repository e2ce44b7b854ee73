"""The client library without async: `sievenet.sync.connect`."""

from sievenet.client.sync import SyncAdvertisement, SyncFeed, SyncNode, connect

__all__ = ["SyncAdvertisement", "SyncFeed", "SyncNode", "connect"]
