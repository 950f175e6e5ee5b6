"""A headless Chromium that looks at the page, and what it can tell of it."""

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from esper.dashboard.server import build_app

CHROMIUM, DRIVER = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
CONTRAST = """
const light = (channel) => { const c = channel / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
const ground = (node) => {
  for (let at = node; at; at = at.parentElement) {
    const found = parts(getComputedStyle(at).backgroundColor);
    if (found.length < 4 || found[3] > 0) return found;
  }
  return [255, 255, 255];
};
const faults = [];
for (const node of document.querySelectorAll("main *:not(svg):not(svg *), header *")) {
  const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
  if (!own || !node.getClientRects().length) continue;
  const [a, b] = [luminance(parts(getComputedStyle(node).color)), luminance(ground(node))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) faults.push(`${node.tagName}.${node.className} has a contrast of ${ratio.toFixed(2)}`);
}
return faults;
"""
"""Text whose contrast is below what WCAG 2 asks of level AA."""
STRUCTURE = """
const faults = [];
const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
const twice = ids.filter((id, at) => ids.indexOf(id) !== at && !id.startsWith("hatch-"));
if (twice.length) faults.push(`ids stand twice: ${twice}`);
if (!document.documentElement.lang) faults.push("the page has no language");
if (document.querySelectorAll("main").length !== 1) faults.push("there is not one main");
for (const table of document.querySelectorAll("table")) {
  if (!table.caption || !table.querySelector("th[scope]")) faults.push("a table lacks caption or headers");
}
for (const box of document.querySelectorAll(".scroll")) {
  if (box.tabIndex !== 0) faults.push("what scrolls cannot be reached by keyboard");
}
let level = 0;
for (const each of document.querySelectorAll("h1, h2, h3")) {
  const now = Number(each.tagName[1]);
  if (now > level + 1) faults.push(`${each.tagName} follows H${level}`);
  level = now;
}
return faults;
"""
WHOLE = "return !document.body.innerText.includes('still being read') &&"
NEEDS_NAME = {"button", "combobox", "image", "img", "dialog", "table", "region", "link", "progressbar"}


@contextmanager
def chromium(width: int = 1280, height: int = 720, dark: bool = False) -> Iterator[webdriver.Chrome]:
    """A browser with a profile of its own."""
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.binary_location = str(CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        resize(driver, width, height)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        yield driver
    finally:
        driver.quit()


def resize(driver: webdriver.Chrome, width: int, height: int) -> None:
    """Another window."""
    sizes = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sizes)


@contextmanager
def served(root: Path) -> Iterator[str]:
    """The address of a real server of a directory."""
    server = uvicorn.Server(
        uvicorn.Config(build_app(root), log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    )
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    server.should_exit = True
    thread.join(10)


def wait_for(driver: webdriver.Chrome, script: str, seconds: float = 20.0) -> Any:
    """What the script returns, once that is something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = driver.execute_script(script)
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"never true within {seconds:g} s: {script}\n{complaints(driver)}")


def complaints(driver: webdriver.Chrome) -> list[str]:
    """Errors of scripts, and what the page's policy has blocked."""
    return [each["message"] for each in driver.get_log("browser") if each["level"] == "SEVERE"]


def faults(driver: webdriver.Chrome) -> list[str]:
    """What keeps people with a keyboard, a screen reader or weak eyes out."""
    tree = driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    nameless = [
        f"a {node['role']['value']} has no name"
        for node in tree
        if not node["ignored"]
        and node.get("role", {}).get("value") in NEEDS_NAME
        and not node.get("name", {}).get("value")
    ]
    return [*nameless, *driver.execute_script(STRUCTURE), *driver.execute_script(CONTRAST)]


def browse_long_run(path: Path) -> dict[str, float]:
    """How soon a page shows a whole run, and how it scrolls. The server has been asked before."""
    with served(path) as address, chromium() as driver:
        driver.get(address)
        wait_for(driver, f"{WHOLE} document.querySelector('#doing svg')", 90)
        begin = time.monotonic()
        driver.get(address)
        wait_for(driver, "return document.querySelector('#episodes tbody tr')", 60)
        loaded = time.monotonic() - begin
        frames = driver.execute_async_script("""
            const done = arguments[0], times = [];
            let before = performance.now(), left = 90;
            const step = (now) => {
              times.push(now - before); before = now;
              window.scrollBy(0, 60);
              if (left--) requestAnimationFrame(step); else done(times.slice(5));
            };
            requestAnimationFrame(step);""")
        heap = driver.execute_script("return performance.memory.usedJSHeapSize") / 1e6
    frames.sort()
    return {
        "loaded, s": loaded,
        "median frame while scrolling, ms": frames[len(frames) // 2],
        "95 % of frames are shorter than, ms": frames[int(0.95 * len(frames))],
        "memory of scripts, MB": heap,
    }
