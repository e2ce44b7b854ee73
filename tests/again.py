"""What failed once more, alone: `make tests` calls this when its run has ended with failures.

    python -m tests.again 1

Some tests start daemons, clusters and switches, and wait for them with time limits. The run beside which they wait is
four processes on two cores, and a machine that stops for seconds makes one of them fail without a fault. So a few
failures are run once more, one after the other, without anything beside them and without coverage. A failure that a
seed or a table causes, as all simulations and properties have in CI, comes again. What passes now is named, as
unsteady: it is something to look into, not something to forget.

What passing alone does not excuse ends the run with another status, and is not run again (tests/conftest.py): a crash;
an error behind a test, which may be of a fixture that others share; what another test left behind, as an error that
nobody caught.

It ends as the first run did, unless everything that failed passes now.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: More failures than this are not an accident, and are not run again.
FEW = 4
#: What pytest ends with when tests failed, and nothing worse happened.
FAILED = 1


def failed(root: Path) -> list[str]:
    """The tests that the last run of pytest there saw fail."""
    try:
        return sorted(json.loads((root / ".pytest_cache/v/cache/lastfailed").read_text()))
    except FileNotFoundError:
        return []


def say(line: str) -> None:
    sys.stdout.write(f"\n{line}\n")
    sys.stdout.flush()


def again(root: Path, status: int) -> int:
    """What `make tests` ends with, after a run that ended with this status."""
    names = failed(root)
    if status != FAILED or not 0 < len(names) <= FEW:
        return status
    say(f"{len(names)} failed; once more, alone: {' '.join(names)}")
    run = [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", "--no-cov", *names]
    if subprocess.run(run, cwd=root, check=False).returncode:
        return status
    # A run with failures does not say whether enough lines were covered; this does.
    if subprocess.run([sys.executable, "-m", "coverage", "report", "--format=total"], cwd=root, check=False).returncode:
        return status
    say(f"UNSTEADY, failed beside other tests and passed alone: {' '.join(names)}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("status", type=int, help="what the run of pytest ended with")
    return again(ROOT, parser.parse_args().status)


if __name__ == "__main__":
    sys.exit(main())
