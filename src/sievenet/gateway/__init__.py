"""Fabrics and routers joined: `gateway.Gateway` is a client of a fabric and of a router in the same process.

It stands above both the client library and the routers, so that neither needs to know the other for its sake.

Imports only `client`, `content`, `errors`, `routers` and `session`.
"""
