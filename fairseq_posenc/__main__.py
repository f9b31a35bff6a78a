"""Prints the package's directory, for ``fairseq-train --user-dir "$(python -m fairseq_posenc)" ...``."""

import os
import sys


def main() -> int:
    """Prints the directory and returns the exit status: 0, or 2 if arguments are given."""
    if len(sys.argv) > 1:
        print(
            f"python -m fairseq_posenc takes no arguments (got {sys.argv[1]!r}): it prints the directory "
            'for fairseq\'s --user-dir; train with fairseq-train --user-dir "$(python -m fairseq_posenc)".',
            file=sys.stderr,
        )
        return 2
    # abspath, not realpath: fairseq compares this path with the imported package's __file__.
    print(os.path.dirname(os.path.abspath(__file__)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
