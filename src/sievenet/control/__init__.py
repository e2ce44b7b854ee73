"""Decides: advertisements and subscriptions become flow tables.

Start with `registrations` (who wants what, and the tables that follow) and `routes` (paths
as masks), then `controller` (stimuli in, instructions out), `plane` (the shell around
it) and `journal`.
Names are imported from the modules, since clients need `protocol` alone and nothing heavy.

Imports only `access`, `append`, `content`, `dataplane`, `errors`, `index`, `jit`, `network` and `session`.
"""
