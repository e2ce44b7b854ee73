"""The transport's shell in a node: clocks, alarms and control messages around the protocol of `sievenet.transport`.

`transport` is what a node has, `source` and `sink` are its ends, and `endpoint` is what those share in a category.
`exchange` and `shim` say things over publish and subscribe; a host (`fabric_host`, `overlay_host`) is the node as the
transport sees it.
"""
