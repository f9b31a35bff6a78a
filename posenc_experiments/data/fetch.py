"""Downloads one file from one URL: resumes an earlier attempt, verifies the file, and only then gives it its name."""

import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

from posenc_experiments.base.errors import FIXES
from posenc_experiments.base.markers import file_hash, fingerprint
from posenc_experiments.data.sources import Archive

ATTEMPTS = 4  # attempts in a row without progress
PROGRESS = 1 << 20  # bytes that count as progress
TOO_MANY_REQUESTS, OUT_OF_RANGE = 429, 416
Report = Callable[..., object]


class FetchError(Exception):
    """A failed download from one URL; its text is a clause that follows the URL, without a full stop."""


def verify(path: Path, row: Archive) -> None:
    """FetchError unless the file has the table's size and checksum."""
    size = path.stat().st_size
    if row.bytes is not None and size != row.bytes:
        raise FetchError(f"has {size:,} bytes instead of {row.bytes:,}: it is not the file this recipe was made for")
    method, wanted = row.checksum.split(":")
    found = file_hash(path, method)
    if found != wanted:
        name = {"sha256": "SHA-256", "md5": "MD5"}[method]
        raise FetchError(f"has {name} {found} instead of {wanted}: it is damaged or another version")


def part_path(row: Archive, final: Path) -> Path:
    """The path of an unfinished download; each URL has its own, because files of two URLs may differ."""
    return final.with_name(f"{final.name}.{fingerprint(row.url)[:8]}.part")


def fetch(row: Archive, final: Path, report: Report) -> None:
    """Downloads `row.url` to `final`; FetchError if that fails.

    `report` is called with `completed`, the bytes so far, and `total`, the bytes of the file, if known.
    """
    part = part_path(row, final)
    part.parent.mkdir(parents=True, exist_ok=True)
    resumed = part.exists()
    _fetch_all(row, part, report)
    try:
        verify(part, row)
    except FetchError:
        part.unlink()  # a wrong file must not be resumed
        if not resumed:
            raise
        fetch(row, final, report)  # the earlier part may have been damaged, by a power cut for instance
    else:
        part.replace(final)


def _fetch_all(row: Archive, part: Path, report: Report) -> None:
    """Appends to `part` until it is complete; a connection that breaks is retried as long as there is progress."""
    attempt, had = 0, _size(part)
    while row.bytes is None or _size(part) < row.bytes:
        try:
            _fetch_rest(row, part, report)
            return
        except urllib.error.HTTPError as error:
            if error.code == OUT_OF_RANGE and _size(part):  # no bytes follow
                return
            if (error.code < 500 and error.code != TOO_MANY_REQUESTS) or attempt == ATTEMPTS - 1:
                reason = " ".join(str(error.reason).split())
                raise FetchError(f"answered '{error.code} {reason}'") from None
        except (OSError, HTTPException, ValueError) as error:
            if isinstance(error, OSError) and error.errno in FIXES:  # an error of the local disk
                raise
            if attempt == ATTEMPTS - 1 or isinstance(error, ValueError):
                raise FetchError(f"cannot be reached ({getattr(error, 'reason', error)})") from None
        attempt, had = (0, _size(part)) if _size(part) >= had + PROGRESS else (attempt + 1, had)
        time.sleep(attempt)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _fetch_rest(row: Archive, part: Path, report: Report) -> None:
    have = _size(part)
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
    if total is not None and _size(part) < total:
        raise ConnectionError(f"the connection ended after {_size(part):,} of {total:,} bytes")
