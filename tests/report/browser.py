"""browser.py - drives a headless Chromium by its DevTools protocol through a pipe. Needs only the standard library.

Every wait is for an answer or an event. Only a browser that hangs reaches its limit.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile

LIMIT_S = 240


def find():
    """The path of the browser, or None if there is none."""
    return next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None)


class Browser:
    def __init__(self, work):
        self.profile = tempfile.mkdtemp(prefix="profile-", dir=work)
        ours_in, theirs_out = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in os.pipe())
        theirs_in, ours_out = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in os.pipe())
        self.input, self.output = ours_in, ours_out

        def connect():
            os.dup2(theirs_in, 3)
            os.dup2(theirs_out, 4)

        command = [find(), "--headless=new", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run", "--disable-extensions",
                   "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps",
                   "--disable-dev-shm-usage", "--force-color-profile=srgb", "--user-data-dir=" + self.profile, "about:blank"]
        if os.geteuid() == 0:
            command.insert(1, "--no-sandbox")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        pass_fds=(3, 4), preexec_fn=connect, start_new_session=True)
        os.close(theirs_in)
        os.close(theirs_out)
        self.buffer, self.number, self.events = b"", 0, []

    def read(self):
        while b"\0" not in self.buffer:
            if not select.select([self.input], [], [], LIMIT_S)[0]:
                raise RuntimeError("the browser does not answer")
            part = os.read(self.input, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self.buffer += part
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.output, data):]
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(method + ": " + json.dumps(answer["error"]))
                return answer["result"]
            self.events.append(answer)

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)


class Page:
    """One page, with its troubles: script errors, console errors, requests to other addresses."""

    def __init__(self, browser, width=1280, height=900, scale=1, dark=False, touch=False):
        self.browser = browser
        self.target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.size(width, height, scale, touch)
        self.scheme(dark)

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def size(self, width, height, scale=1, touch=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=touch)
        if touch:
            self.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=2)

    def scheme(self, dark):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def mine(self):
        return [event for event in self.browser.events if event.get("sessionId") == self.session]

    def open(self, path):
        self.address = "file://" + os.path.abspath(path)
        self.call("Page.navigate", url=self.address)
        self.until("document.readyState === 'complete' && typeof app !== 'undefined' && app.ready > 0")

    def run(self, text):
        answer = self.call("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(text + ": " + details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def until(self, condition):
        """Waits in the page for the condition, frame by frame."""
        for _ in range(LIMIT_S * 10):
            try:
                if self.run("new Promise(done => setTimeout(() => done(!!(%s)), 20))" % condition):
                    return
            except RuntimeError as error:
                if "context" not in str(error) and "navigat" not in str(error):  # the page changed meanwhile
                    raise
        raise RuntimeError("never true: " + condition)

    def settle(self):
        """Waits until the page has drawn everything that it was asked to draw."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))))")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y, modifiers=0):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1, modifiers=modifiers)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1, modifiers=modifiers)
        self.settle()

    def drag(self, x, y, to_x, to_y, modifiers=0):
        self.mouse("mousePressed", x, y, button="left", clickCount=1, modifiers=modifiers)
        for step in range(1, 5):
            self.mouse("mouseMoved", x + (to_x - x) * step / 4, y + (to_y - y) * step / 4, button="left", buttons=1, modifiers=modifiers)
        self.mouse("mouseReleased", to_x, to_y, button="left", clickCount=1, modifiers=modifiers)
        self.settle()

    def place(self, selector):
        """Scrolls to an element, and returns its middle. Looks twice, because parts that the page draws late may move it."""
        self.run("document.querySelector(%s).scrollIntoView({block: 'center'})" % json.dumps(selector))
        self.settle()
        box = self.run("(() => { const e = document.querySelector(%s); e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
                       " return [b.left, b.top, b.width, b.height]; })()" % json.dumps(selector))
        return box[0] + box[2] / 2, box[1] + box[3] / 2

    def click_on(self, selector):
        self.click(*self.place(selector))

    def key(self, key, modifiers=0):
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35}
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes.get(key, ord(key[0])), modifiers=modifiers, **more)
        self.settle()

    def touch(self, kind, points):
        self.call("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)])

    def picture(self, path, whole=False):
        parameters = {"format": "png", "captureBeyondViewport": whole}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            parameters["clip"] = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        with open(path, "wb") as out:
            out.write(base64.b64decode(self.call("Page.captureScreenshot", **parameters)["data"]))

    def paper(self):
        """Prints the page. Returns the bytes of the PDF."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])

    def troubles(self):
        """Script errors, errors on the console or in the log, and requests to other addresses."""
        self.settle()
        out = []
        for event in self.mine():
            name, p = event["method"], event["params"]
            if name == "Runtime.exceptionThrown":
                out.append("script: " + json.dumps(p["exceptionDetails"])[:600])
            elif name == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
                out.append("console: " + json.dumps(p["args"])[:600])
            elif name == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning") and "readback" not in p["entry"]["text"]:  # the tests' own reads of pixels
                out.append("log: " + p["entry"]["text"])
            elif name == "Network.requestWillBeSent" and p["request"]["url"] != self.address and not p["request"]["url"].startswith("data:"):
                out.append("request: " + p["request"]["url"])
        return out

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
