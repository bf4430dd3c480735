"""Look at the built documentation in a real browser: wide and narrow, light and dark.

Usage: python tests/site/browser.py FOLDER [--shots FOLDER] [PAGE...]

It needs Chromium: `apt-get install chromium-headless-shell`, or PYPMIX_TEST_BROWSER with the path of one. Without it
nothing is looked at, which is an error where PYPMIX_TEST_REQUIRE is `all`. It prints each page that is wider than its
window, each wide table that does not scroll, each code block that is wider than its page, names in tables that are
broken in the middle, links without text, words that are cut off, pictures that are missing, and text of pictures that
is too small or hard to read. It also searches for words that people type, and prints those for which another page than
the wanted one comes first. It exits with 1 if it has printed any of these.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
WINDOWS = {"wide": (1600, 900), "narrow": (390, 844)}
COLORS = ("light", "dark")
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe")

START = """
import fcntl, os, sys
ours = [fcntl.fcntl(int(text), fcntl.F_DUPFD, 10) for text in sys.argv[1:3]]
for place, descriptor in enumerate(ours, 3):
    os.dup2(descriptor, place)
os.execvp(sys.argv[3], sys.argv[3:])
"""
"""Puts the pipes on descriptors 3 and 4, where the protocol is; a shell may know none above 9."""

LIMIT = 120
"""Seconds that the browser has for a page."""

SEARCHES = {
    "hang": "operate/troubleshooting.html",
    "rank 0 of 1": "operate/troubleshooting.html",
    "survive a killed rank": "learn/survive.html",
    "launch on two machines": "use/cluster.html",
    "install": "learn/install.html",
    "spawn": "use/spawn.html",
    "publish": "use/exchange.html",
    "NCCL": "use/exchange.html",
    "leader": "use/leaders.html",
    "process set": "use/query.html",
    "event": "use/events.html",
    "slurm": "use/batch.html",
    "srun": "use/launchers.html",
    "pytorch": "use/torch.html",
    "kill a rank": "use/testing.html",
    "multiprocessing": "use/processes.html",
    "slow": "operate/trace.html",
    "Client": "reference/client.html",
    "OperationTimeout": "reference/errors.html",
}
"""The page that a search for each of these has to show first."""

FIRST = """
new Promise(resolve => {
    const look = () => {
        const done = document.querySelector('#search-results .search-summary');
        const link = document.querySelector('#search-results ul.search li a');
        if (link || (done && /found|match/.test(done.textContent))) resolve(link ? link.getAttribute('href') : '');
        else setTimeout(look, 20);
    };
    look();
})
"""
"""Waits for the results of a search, and returns the address of the first one."""

LOOK = """
(() => {
    const wide = innerWidth > 800, found = [];
    const short = element => (element.innerText || element.outerHTML).trim().replace(/\\s+/g, ' ').slice(0, 60);
    const light = text => {
        const [r, g, b] = text.match(/[\\d.]+/g).map(value => (value / 255) ** 2.2);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const root = document.documentElement;
    if (root.scrollWidth > innerWidth + 1) {
        const beyond = element => element.getBoundingClientRect().right > innerWidth + 1;
        const far = [...document.querySelectorAll('article *')].find(beyond);
        found.push(`the page is ${root.scrollWidth} wide: ${far ? short(far) : 'outside of the article'}`);
    }
    for (const block of document.querySelectorAll('article pre'))
        if (wide && block.scrollWidth > block.clientWidth + 1)
            found.push(`a code block is ${block.scrollWidth - block.clientWidth} too wide: ${short(block)}`);
    for (const link of document.querySelectorAll('article a[href]'))
        if (!link.textContent.trim() && !link.querySelector('img[alt], svg') && !link.ariaLabel)
            found.push(`a link without text: ${link.getAttribute('href')}`);
    const scrolls = element =>
        element && (getComputedStyle(element).overflowX === 'auto' || scrolls(element.parentElement));
    for (const table of document.querySelectorAll('article table')) {
        const beyond = table.getBoundingClientRect().right - table.closest('article').getBoundingClientRect().right;
        if (beyond > 1 && !scrolls(table.parentElement))
            found.push(`a table is ${beyond} too wide and does not scroll: ${short(table)}`);
    }
    const lines = (node, start, end) => {
        const range = document.createRange();
        range.setStart(node, start);
        range.setEnd(node, end);
        return new Set([...range.getClientRects()].map(box => Math.round(box.top))).size;
    };
    const broken = [];
    for (const code of document.querySelectorAll('article table code')) {
        const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
        for (let node = walker.nextNode(); node; node = walker.nextNode())
            for (const name of node.data.matchAll(/\\S+/g))
                if (lines(node, name.index, name.index + name[0].length) > 1) broken.push(name[0]);
    }
    if (broken.length) found.push(`${broken.length} names in tables are broken, such as ${broken[0]}`);
    for (const words of document.querySelectorAll('article a, article p, article code'))
        if (words.getBoundingClientRect().right > innerWidth + 1 && !scrolls(words)) {
            found.push(`words are cut off: ${short(words)}`);
            break;
        }
    for (const image of document.querySelectorAll('img'))
        if (!image.complete || !image.naturalWidth)
            found.push(`a picture is missing: ${image.getAttribute('src')}`);
    for (const image of document.querySelectorAll('article img:not([alt])'))
        found.push(`a picture without a description: ${image.getAttribute('src')}`);
    const ground = light(getComputedStyle(document.body).backgroundColor);
    for (const words of document.querySelectorAll('.drawing svg text')) {
        const ink = light(getComputedStyle(words).fill);
        const contrast = (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
        if (contrast < 4.5) {
            found.push(`a picture has text of contrast ${contrast.toFixed(1)}: ${words.textContent}`);
            break;
        }
        if (words.getBoundingClientRect().height < 8) {
            found.push(`a picture has text that is too small: ${words.textContent}`);
            break;
        }
    }
    return found;
})()
"""


class Browser:
    """A browser without a window, spoken to by Chromium's debugging protocol over a pair of pipes."""

    def __init__(self, program: str) -> None:
        # its children may still write there when it has ended
        self._folder = tempfile.TemporaryDirectory(prefix="pypmix-browser-", ignore_cleanup_errors=True)
        requests, self._out = os.pipe()
        self._in, answers = os.pipe()
        command = [sys.executable, "-c", START, str(requests), str(answers), program, *OPTIONS]
        command.append(f"--user-data-dir={self._folder.name}")
        self._process = subprocess.Popen(
            command, pass_fds=(requests, answers), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(requests)
        os.close(answers)
        self._number = 0
        self._unread = b""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Page.enable")

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            if not select.select([self._in], [], [], LIMIT)[0]:
                raise RuntimeError(f"the browser has not answered within {LIMIT} s")
            more = os.read(self._in, 1 << 20)
            if not more:
                raise RuntimeError("the browser has ended")
            self._unread += more
        message, _, self._unread = self._unread.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def ask(self, method: str, *, until: str = "", **arguments: Any) -> dict[str, Any]:
        """Carry out a method and return its result; `until` is an event that has to come, too."""
        self._number += 1
        request: dict[str, Any] = {"id": self._number, "method": method, "params": arguments}
        if hasattr(self, "_session"):
            request["sessionId"] = self._session
        os.write(self._out, json.dumps(request).encode() + b"\0")
        result = None
        while result is None or until:
            message = self._message()
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                result = message["result"]
            elif message.get("method") == until:
                until = ""
        return result

    def show(self, page: Path, window: str, color: str) -> list[str]:
        """Return what is wrong with a page."""
        width, height = WINDOWS[window]
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": color}])
        self.ask("Page.navigate", until="Page.loadEventFired", url=page.resolve().as_uri())
        answer = self.ask("Runtime.evaluate", expression=LOOK, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        found: list[str] = answer["result"]["value"]
        return found

    def search(self, folder: Path, words: str) -> str:
        """Return the page that a search for words shows first."""
        address = f"{(folder / 'search.html').resolve().as_uri()}?q={quote(words)}"
        self.ask("Page.navigate", until="Page.loadEventFired", url=address)
        answer = self.ask("Runtime.evaluate", expression=FIRST, awaitPromise=True, returnByValue=True)
        first: str = answer["result"]["value"]
        return first.partition("?")[0].partition("#")[0]

    def shoot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._folder.cleanup()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("pages", nargs="*")
    parser.add_argument("--shots", type=Path)
    given = parser.parse_intermixed_args()
    program = os.environ.get("PYPMIX_TEST_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        print("not looked at: there is no browser; apt-get install chromium-headless-shell, or set PYPMIX_TEST_BROWSER")
        return 1 if os.environ.get("PYPMIX_TEST_REQUIRE") == "all" else 0
    pages = [given.folder / name for name in given.pages] or sorted(given.folder.rglob("*.html"))
    pages = [page for page in pages if "_static" not in page.parts]
    wrong = 0
    browser = Browser(program)
    try:
        for window in WINDOWS:
            for color in COLORS:
                for page in pages:
                    name = page.relative_to(given.folder)
                    for problem in browser.show(page, window, color):
                        print(f"{name} ({window}, {color}): {problem}")
                        wrong += 1
                    if given.shots:
                        given.shots.mkdir(exist_ok=True)
                        browser.shoot(given.shots / f"{'-'.join(name.with_suffix('').parts)}-{window}-{color}.png")
        for words, wanted in () if given.pages else SEARCHES.items():
            first = browser.search(given.folder, words)
            if first != wanted:
                print(f"a search for {words!r} shows {first or 'nothing'} first, and not {wanted}")
                wrong += 1
    finally:
        browser.close()
    print(f"{len(pages)} pages in {len(WINDOWS)} windows and {len(COLORS)} colours: {wrong} problems")
    return 1 if wrong or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
