"""Calls the flood in C (`_flood.c`) inside of a namespace: LIBRARY NAMESPACE WORDS..."""

from __future__ import annotations

import ctypes
import sys

from sievenet.dataplane import namespaces


def main() -> None:
    library, namespace, *words = sys.argv[1:]
    arguments = [b"flood", *(word.encode() for word in words)]
    array = (ctypes.c_char_p * len(arguments))(*arguments)
    flood = ctypes.CDLL(library).flood
    sys.exit(namespaces.inside(namespace, lambda: flood(len(arguments), array)))


if __name__ == "__main__":
    main()
