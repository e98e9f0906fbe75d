"""A page in headless Chromium, controlled by the DevTools protocol over a pipe."""

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run")
KEYS = {"Tab": 9, "Enter": 13, " ": 32}
SECONDS = 120


class Page:
    """The commands that the tests need."""

    def __init__(self, send, receive):
        self._write, self._read = send, receive
        self._count, self._session = 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Accessibility.enable")

    def call(self, method, **parameters):
        """The result of a command; events before it are ignored."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        self._write(message | ({"sessionId": self._session} if self._session else {}))
        while (answer := self._read()).get("id") != self._count:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, url):
        """Load an address and wait until it is loaded."""
        self.call("Page.navigate", url=url)
        while self.run("document.readyState") != "complete":
            pass

    def run(self, script):
        """The value of a JavaScript expression, also of a promise; exempt from the policy of the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key):
        """Press a key, as a user does."""
        text = {"Enter": "\r", " ": " "}.get(key)
        event = {"key": key, "windowsVirtualKeyCode": KEYS[key]} | ({"text": text} if text else {})
        self.call("Input.dispatchKeyEvent", type="keyDown", **event)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def resize(self, width, height=800):
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
            mobile=width < 500,
        )  # fmt: skip

    def media(self, media="screen", scheme="light"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def accessible(self):
        """(role, name) of the elements that assistive technology is told about."""
        nodes = [node for node in self.call("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]
        return [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes]

    def pdf(self):
        """The bytes of the printed page."""
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True)["data"])


@contextmanager
def browser():
    """A `Page` of a Chromium with a profile of its own."""
    to_browser, commands = os.pipe()
    answers, from_browser = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The browser reads commands from descriptor 3 and writes answers to 4.
        shell = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        command = [
            "bash", "-c", shell, "bash", BROWSER, *OPTIONS, f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        process = subprocess.Popen(
            command, pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        try:
            with open(commands, "wb", buffering=0) as out, open(answers, "rb") as stream:
                yield Page(lambda message: out.write(json.dumps(message).encode() + b"\0"), _reader(stream))
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _reader(stream):
    buffered = bytearray()

    def read():
        while (end := buffered.find(0)) < 0:
            part = stream.read1(1 << 20)
            assert part, "the browser has ended"
            buffered.extend(part)
        message = json.loads(buffered[:end])
        del buffered[: end + 1]
        return message

    return read
