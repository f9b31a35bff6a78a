"""Downloads one file from one URL: resumes an earlier attempt, verifies the file, and only then gives it its name."""

import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

from posenc_experiments.base.errors import FIXES
from posenc_experiments.base.markers import file_hash, naming_full_disk
from posenc_experiments.data.sources import Archive

ATTEMPTS = 4  # attempts in a row without progress
PROGRESS = 1 << 20  # bytes that count as progress
TOO_MANY_REQUESTS, OUT_OF_RANGE = 429, 416
Report = Callable[..., object]


class FetchError(Exception):
    """A failed download from one URL; its text is a clause that follows the URL, without a full stop."""


def mismatch(path: Path, row: Archive) -> str:
    """How a file differs from the table's size or checksum, as a clause that follows its name; empty if it does not."""
    if row.bytes is not None and (size := size_of(path)) != row.bytes:
        return f"has {size:,} bytes instead of {row.bytes:,}: it is not the file this recipe was made for"
    method, wanted = row.checksum.split(":")
    if (found := file_hash(path, method)) == wanted:
        return ""
    name = {"sha256": "SHA-256", "md5": "MD5"}[method]
    return f"has {name} {found} instead of {wanted}: it is damaged or another version"


def part_path(final: Path) -> Path:
    """The path of an unfinished download."""
    return final.with_name(f"{final.name}.part")


def size_of(path: Path) -> int:
    """The bytes of a file; none if it does not exist."""
    return path.stat().st_size if path.exists() else 0


def fetch(row: Archive, final: Path, report: Report) -> None:
    """Downloads `row.url` to `final`; FetchError if that fails.

    `report` is called with `completed`, the bytes so far, and `total`, the bytes of the file, if known.
    """
    part = part_path(final)
    part.parent.mkdir(parents=True, exist_ok=True)
    resumed = part.exists()
    with naming_full_disk(part):
        _fetch_all(row, part, report)
    if not (fault := mismatch(part, row)):
        part.replace(final)
        return
    part.unlink()  # a wrong file must not be resumed
    if not resumed:
        raise FetchError(fault)
    fetch(row, final, report)  # the earlier part may be damaged, by a power cut for instance, or be of another URL


def _fetch_all(row: Archive, part: Path, report: Report) -> None:
    """Appends to `part` until it is complete; a connection that breaks is retried as long as there is progress."""
    failures, had = 0, size_of(part)
    while row.bytes is None or size_of(part) < row.bytes:
        try:
            _fetch_rest(row, part, report)
            return
        except urllib.error.HTTPError as error:
            if error.code == OUT_OF_RANGE and size_of(part):  # no bytes follow
                return
            again = error.code >= 500 or error.code == TOO_MANY_REQUESTS
            reason = f"answered '{error.code} {' '.join(str(error.reason).split())}'"
        except (OSError, HTTPException, ValueError) as error:
            if isinstance(error, OSError) and error.errno in FIXES:  # an error of the local disk
                raise
            again = not isinstance(error, ValueError)
            reason = f"cannot be reached ({getattr(error, 'reason', error)})"
        failures, had = (0, size_of(part)) if size_of(part) >= had + PROGRESS else (failures + 1, had)
        if not again or failures == ATTEMPTS:
            raise FetchError(reason)
        time.sleep(failures)


def _fetch_rest(row: Archive, part: Path, report: Report) -> None:
    have = size_of(part)
    headers = {"User-Agent": "fairseq-posenc", **({"Range": f"bytes={have}-"} if have else {})}
    with urllib.request.urlopen(urllib.request.Request(row.url, headers=headers), timeout=60) as answer:
        # A server that ignores the range answers 200 and sends the whole file.
        start = have if answer.status == 206 else 0
        length = answer.headers.get("Content-Length")
        total = start + int(length) if length and length.isdecimal() else row.bytes
        if row.bytes is not None and total != row.bytes:  # such as an error page, which must not replace the part
            raise FetchError(f"offers {total:,} bytes instead of {row.bytes:,}: it is another file")
        with open(part, "ab" if start else "wb") as file:
            while block := answer.read(1 << 20):
                file.write(block)
                if row.bytes is not None and file.tell() > row.bytes:
                    raise FetchError(f"sends more than {row.bytes:,} bytes: it is another file")
                report(completed=file.tell(), total=total)
    if total is not None and size_of(part) < total:
        raise ConnectionError(f"the connection ended after {size_of(part):,} of {total:,} bytes")
