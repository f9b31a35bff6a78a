"""Prints the package's directory, for ``fairseq-train --user-dir "$(python -m fairseq_posenc)" ...``."""

import os

if __name__ == "__main__":
    # abspath, not realpath: fairseq compares this path with the imported package's __file__.
    print(os.path.dirname(os.path.abspath(__file__)))
