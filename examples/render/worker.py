"""Renders HTML as PNG in a headless Chromium, which stays open between calls. It drives the browser over a pipe."""
from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from typing import Any

import tempool

WIDTH, HEIGHT = 800, 600


class Browser:
    """The browser reads commands from its fd 3 and writes answers and events to its fd 4, each ended by a NUL."""

    def __init__(self) -> None:
        self.ids = itertools.count(1)
        self.profile = tempfile.mkdtemp(prefix="render")
        commands, self.commands = os.pipe()
        self.answers, answers = os.pipe()

        def use_pipes() -> None:  # the pipes may have the numbers 3 and 4 themselves, so move them away first
            high = os.dup2(commands, 100), os.dup2(answers, 101)
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe",
             f"--window-size={WIDTH},{HEIGHT}", "--user-data-dir=" + self.profile, "about:blank"],
            preexec_fn=use_pipes, pass_fds=(3, 4), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(answers)
        self.input = os.fdopen(self.answers, "rb")

    def read(self) -> Any:
        message = bytearray()
        while (byte := self.input.read(1)) != b"\0":
            if not byte:
                raise tempool.Fatal("the browser has exited")  # the worker is replaced
            message += byte
        return json.loads(message)

    def send(self, method: str, session: str | None = None, **params: Any) -> Any:
        message: dict[str, Any] = {"id": next(self.ids), "method": method, "params": params}
        if session:
            message["sessionId"] = session
        try:
            os.write(self.commands, json.dumps(message).encode() + b"\0")
        except BrokenPipeError:
            raise tempool.Fatal("the browser has exited") from None
        while (answer := self.read()).get("id") != message["id"]:
            pass  # an event
        if "error" in answer:
            raise tempool.Error(f"{method}: {answer['error']['message']}", "browser")
        return answer["result"]

    def render(self, html: str) -> bytes:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        try:
            session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            self.send("Emulation.setDeviceMetricsOverride", session, width=WIDTH, height=HEIGHT, deviceScaleFactor=1, mobile=False)
            frame = self.send("Page.getFrameTree", session)["frameTree"]["frame"]["id"]
            self.send("Page.setDocumentContent", session, frameId=frame, html=html)
            return base64.b64decode(self.send("Page.captureScreenshot", session, format="png")["data"])
        finally:
            self.send("Target.closeTarget", targetId=target)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)


browser: Browser  # since start()


@tempool.on_start
def start() -> None:
    global browser
    browser = Browser()
    browser.send("Browser.getVersion")  # it answers when it has started


@tempool.method(raw=True)
def render(body: bytes) -> bytes:
    if not body:
        raise tempool.Error("the request has no HTML", "no_html")
    try:
        return browser.render(body.decode())
    except UnicodeDecodeError:
        raise tempool.Error("the request is not UTF-8", "no_html") from None


@tempool.on_health
def health() -> None:
    browser.send("Browser.getVersion")


@tempool.on_stop
def stop() -> None:
    browser.close()


tempool.run()
