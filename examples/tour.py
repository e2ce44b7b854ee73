"""The guided tour that `make run` shows; the same as `sievenet tour`."""

from sievenet.cli import main as sievenet


def main() -> None:
    """Take the tour."""
    sievenet(["tour"], prog_name="sievenet", standalone_mode=False)


if __name__ == "__main__":
    main()
