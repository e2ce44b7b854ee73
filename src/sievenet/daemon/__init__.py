"""The daemon: a fabric in one process, with ports for clients.

`daemon` puts it together: the embedded data plane, the control plane on its journal, and the door (`server`, one `peer`
per connection, `service` for what they ask). May import everything up to `cache`; does not know the client library.
"""
