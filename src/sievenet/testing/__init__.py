"""For tests of Sievenet and of programs that use it: strategies, fakes, contracts.

`strategies` needs hypothesis and is the only module that imports it; import it by its full name.

Imports only `access`, `content`, `dataplane`, `errors`, `index`, `network` and `session`.
"""
