"""``python -m fairseq_posenc`` prints the package's directory, and nothing else, on standard output.

It is meant for ``fairseq-train --user-dir "$(python -m fairseq_posenc)" ...``.
"""

import os
import sys


def main() -> int:
    """Prints the directory. Returns the exit status: 2 if there are arguments, for it takes none."""
    if len(sys.argv) > 1:
        print(
            f"python -m fairseq_posenc takes no arguments (got {sys.argv[1]!r}): it prints the directory "
            'for fairseq\'s --user-dir; train with fairseq-train --user-dir "$(python -m fairseq_posenc)".',
            file=sys.stderr,
        )
        return 2
    # Symbolic links are left as they are: fairseq compares this path with the imported package's __file__.
    print(os.path.dirname(os.path.abspath(__file__)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
