"""``python -m sievenet`` is ``sievenet``."""

from sievenet.cli import main

if __name__ == "__main__":
    main(prog_name="sievenet")
