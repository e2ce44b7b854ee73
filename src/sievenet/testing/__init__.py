"""For tests of Sievenet and of programs that use it: strategies, fakes, contracts.

`strategies` needs hypothesis and is the only module that imports it; import it by its full name.

Imports only `access`, `content`, `control`, `dataplane`, `errors`, `index`, `network`, `programs` and `session`.
"""
