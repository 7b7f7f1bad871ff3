"""A worker that renders HTML as PNG in a headless Chromium, which it drives over a pipe."""
import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile

import tempool

PAGE = """<html><body><h1>report</h1><script>
for (let i = 0; i < 300; i++) document.body.append(Object.assign(document.createElement("p"), {textContent: "row " + i}))
</script></body></html>"""


class Browser:
    """The browser reads commands from its fd 3 and writes answers and events to its fd 4, each ended by a NUL."""

    def __init__(self):
        self.ids = itertools.count(1)
        self.profile = tempfile.mkdtemp(prefix="tempool-browser")
        commands, self.commands = os.pipe()
        self.answers, answers = os.pipe()

        def use_pipes():  # the pipes may have the numbers 3 and 4 themselves, so move them away first
            high = os.dup2(commands, 100), os.dup2(answers, 101)
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe",
             "--user-data-dir=" + self.profile, "about:blank"],
            preexec_fn=use_pipes, pass_fds=(3, 4), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(answers)
        self.input = os.fdopen(self.answers, "rb")

    def read(self):
        message = bytearray()
        while (byte := self.input.read(1)) != b"\0":
            if not byte:
                raise tempool.Fatal("the browser has exited")
            message += byte
        return json.loads(message)

    def send(self, method, session=None, **params):
        message = {"id": next(self.ids), "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while (answer := self.read()).get("id") != message["id"]:
            pass
        return answer["result"]

    def render(self, html):
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        frame = self.send("Page.getFrameTree", session)["frameTree"]["frame"]["id"]
        self.send("Page.setDocumentContent", session, frameId=frame, html=html)
        image = self.send("Page.captureScreenshot", session, format="png")["data"]
        self.send("Target.closeTarget", targetId=target)
        return base64.b64decode(image)


browser = None


@tempool.on_start
def start():
    global browser
    browser = Browser()


@tempool.method(raw=True)
def render(body):
    return browser.render(PAGE)


@tempool.on_stop
def stop():
    browser.process.kill()
    browser.process.wait()
    shutil.rmtree(browser.profile, ignore_errors=True)


tempool.run()
