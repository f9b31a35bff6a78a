"""A local server of files, with the faults of real ones."""

import contextlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path


class Server(http.server.BaseHTTPRequestHandler):
    """Serves a directory, with or without ranges; a connection ends after `cut` bytes."""

    folder: Path
    cut: int | None = None
    ranges = True
    busy = 0  # the number of answers 503 at the beginning
    asked: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Range")))
        path = self.folder / self.path.lstrip("/")
        if type(self).busy:
            type(self).busy -= 1
            self.send_error(503)
            return
        if not path.is_file():
            self.send_error(404)
            return
        data, start = path.read_bytes(), 0
        if self.ranges and (header := self.headers.get("Range")):
            start = int(header.removeprefix("bytes=").rstrip("-"))
            if start >= len(data):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self.wfile.write(data[start:][: self.cut])

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the tests quiet."""


@contextlib.contextmanager
def serve(
    folder: Path, cut: int | None = None, ranges: bool = True, busy: int = 0
) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    asked: list[tuple[str, str | None]] = []
    handler = type("Handler", (Server,), {"folder": folder, "cut": cut, "ranges": ranges, "busy": busy, "asked": asked})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()
