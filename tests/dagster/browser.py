"""A headless Chromium, driven through its DevTools pipe with nothing but the standard library."""

import base64
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any


class Browser:
    """One page. Use it as a context manager; it needs `chromium` on the path."""

    def __init__(self, width: int = 1600, height: int = 1000) -> None:
        self._size = f"--window-size={width},{height}"

    def __enter__(self) -> "Browser":
        self._profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()

        def connect() -> None:  # Chromium reads commands from 3 and answers on 4.
            kept_in, kept_out = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(kept_in, 3)
            os.dup2(kept_out, 4)

        self._process = subprocess.Popen(
            [
                *("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", self._size),
                *("--remote-debugging-pipe", f"--user-data-dir={self._profile.name}", "about:blank"),
            ],
            preexec_fn=connect,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._count = 0
        self._rest = b""
        self._session: str | None = None
        target = next(t for t in self._call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self._call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        self._call("Page.enable")
        self._call("Runtime.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)
        os.close(self._to)
        os.close(self._from)
        self._profile.cleanup()

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", answer["exceptionDetails"]))
        return answer["result"].get("value")

    def wait(self, script: str, seconds: float = 60) -> Any:
        """Poll an expression until it is true; its value. A page that is not there yet has no `document.body`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := self.run(f"document.body && ({script})"):
                return found
            time.sleep(0.25)
        raise TimeoutError(f"waited {seconds} s for {script}")

    def click(self, text: str, selector: str = "button, a, [role=menuitem], [role=tab]", seconds: float = 60) -> None:
        """Click, as a mouse does, the first element that shows `text`."""
        find = f"""(() => {{
            const found = [...document.querySelectorAll({json.dumps(selector)})]
                .find(e => e.innerText && e.innerText.trim().startsWith({json.dumps(text)}) && !e.disabled && e.offsetParent);
            if (!found) return null;
            found.scrollIntoView({{block: 'center'}});
            const box = found.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        }})()"""
        x, y = self.wait(find, seconds)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, selector: str, text: str) -> None:
        """Replace what a text field holds."""
        self.wait(f"!!document.querySelector({json.dumps(selector)})")
        self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.focus(); e.select(); }})()")
        self._call("Input.insertText", text=text)
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13)

    def screenshot(self, path: Path, left: int = 0, top: int = 0, right: int = 0, bottom: int = 0) -> None:
        """A picture of the page, without so many pixels at its sides."""
        width, height = self.run("[innerWidth, innerHeight]")
        clip = {"x": left, "y": top, "width": width - left - right, "height": height - top - bottom, "scale": 1}
        answer = self._call("Page.captureScreenshot", format="png", clip=clip)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _call(self, method: str, **params: Any) -> Any:
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _receive(self) -> Any:
        while b"\0" not in self._rest:
            more = os.read(self._from, 1 << 20)
            if not more:
                raise RuntimeError("chromium has gone")
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)
