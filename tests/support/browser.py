"""A real browser for tests: headless Chromium, spoken to in its DevTools protocol over a pair of pipes."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update",
)  # fmt: skip
PATIENCE = 120  # seconds, on a busy machine
# Chromium reads commands from file descriptor 3 and writes answers to 4.
LAUNCH = """
import fcntl, os, sys
here = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(here[0], 3), os.dup2(here[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find() -> str | None:
    """The path of Chromium, or `None` where it is not installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One tab. What the console says, and every address that the page asks for, is collected."""

    def __init__(self, path: str) -> None:
        self.profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        commands, self._out = os.pipe()
        self._in, write = os.pipe()
        launch = [sys.executable, "-c", LAUNCH, str(commands), str(write), path, *OPTIONS]
        self.process = subprocess.Popen(
            [*launch, f"--user-data-dir={self.profile.name}"], pass_fds=(commands, write),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(commands)
        os.close(write)
        self._number, self._session, self._rest, self._loaded = 0, "", b"", 0
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self._session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")

    def __call__(self, method: str, **parameters: Any) -> Any:
        """Send a command and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            pass
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select.select([self._in], [], [], PATIENCE)[0], f"Chromium has said nothing for {PATIENCE} s"
            part = os.read(self._in, 1 << 16)
            assert part, f"Chromium has ended with status {self.process.wait()}"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(line)
        event, content = message.get("method"), message.get("params", {})
        if event == "Runtime.exceptionThrown":
            self.complaints.append(str(content["exceptionDetails"].get("exception", {}).get("description")))
        elif event == "Runtime.consoleAPICalled":
            self.complaints.append(str([part.get("value") for part in content["args"]]))
        elif event == "Log.entryAdded":
            self.complaints.append(content["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(content["request"]["url"])
        elif event == "Page.loadEventFired":
            self._loaded += 1
        return message

    def open(self, path: Path, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Show a file in a window of that size and wait until it is loaded."""
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self("Emulation.setEmulatedMedia", features=[scheme])
        before = self._loaded
        self("Page.navigate", url=path.absolute().as_uri())
        while self._loaded == before:
            self._read()

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def click(self, expression: str) -> None:
        """A click of the mouse on the middle of the element that the expression gives."""
        self.evaluate(f"({expression}).scrollIntoView({{block: 'center', inline: 'center', behavior: 'instant'}})")
        box = f"(() => {{ const b = ({expression}).getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; }})()"
        x, y = self.evaluate(box)
        for kind in ("mousePressed", "mouseReleased"):
            self("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._out)  # Chromium ends when its commands do
        os.close(self._in)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.profile.cleanup()
