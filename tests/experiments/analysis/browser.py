"""A headless Chromium, driven through its own DevTools protocol over two pipes: no package is needed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = "no Chromium on PATH, so the page of analyse is not tested in one (CONTRIBUTING.md says how to install it)"
SECONDS = 30


def find() -> str | None:
    """The path of a Chromium."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One page of a browser; what it asks the network for is kept in `requests`, what its scripts raise in `errors`."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = os.fdopen(read, "rb"), os.fdopen(write, "wb", buffering=0)
        self._number = 0
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []
        self._rest = b""
        self.requests: list[str] = []
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command and returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._write.write(json.dumps(message).encode() + b"\0")
        while True:
            found = self._receive()
            if found.get("id") == self._number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']['message']}")
                result: dict[str, Any] = found["result"]
                return result
            self._events.append(found)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = self._read.read1(1 << 20)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        parameters = found.get("params", {})
        if found.get("method") == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        if found.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(parameters["exceptionDetails"]))
        return found

    def open(self, url: str, width: int, height: int, scheme: str, scripts: bool = True) -> None:
        """Opens a page in a window of this width, light or dark, and waits until it is loaded."""
        self.requests.clear()
        self._events.clear()
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._events.append(self._receive())

    def evaluate(self, script: str) -> Any:
        """The value of an expression of JavaScript."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def screenshot(self, path: Path, top: float = 0, height: float = 1000) -> None:
        """A picture of a part of the page."""
        width = self.evaluate("innerWidth")
        clip = {"x": 0, "y": top, "width": width, "height": height, "scale": 1}
        found = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def browser(program: str, profile: Path) -> Iterator[Page]:
    """Starts a browser with an empty profile, and ends it."""
    to_browser, write = os.pipe()
    read, from_browser = os.pipe()
    # Without a sandbox, since root may not have one; the page is our own.
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    flags += ["--disable-background-networking", "--disable-component-update", f"--user-data-dir={profile}"]

    # Chromium reads commands from descriptor 3, and answers on 4.
    script = f'exec 3<&{to_browser} 4>&{from_browser}; exec timeout {10 * SECONDS} "$@"'
    process = subprocess.Popen(
        ["bash", "-c", script, "bash", program, "--remote-debugging-pipe", *flags],
        pass_fds=(to_browser, from_browser),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Page(read, write)
    finally:
        process.terminate()
        process.wait(SECONDS)
