"""The page in Chromium: no message on the console, no request, nothing moves, axe finds nothing, keys work.

KSTORE_SCREENSHOTS=DIR keeps a picture of each page.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore

pytestmark = pytest.mark.nightly
sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install --group browser"
)
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install --group browser")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
GOLDEN = Path(__file__).parents[1] / "golden" / "data"
WATCH = """
    window.moved = 0;
    new PerformanceObserver((list) => { for (const each of list.getEntries()) window.moved += each.value; })
        .observe({ type: "layout-shift", buffered: true });
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A broker's directory, a damaged one, one of many partitions, an empty one."""
    here = tmp_path_factory.mktemp("pages")
    shutil.copytree(GOLDEN / "broker" / "data", here / "damaged")
    file = next((here / "damaged" / "events-0").glob("*.log"))
    file.write_bytes(file.read_bytes()[:-30])
    with kstore.LogStore(here / "many", mode="a", background=False) as store:
        for topic in range(200):
            store.create_topic(f"topic-{topic:03}", 5, internal_segment_bytes=200, retention_ms=1000)
            store.extend(f"topic-{topic:03}", [b"v" * 100] * 20, keys=[b"%d" % at for at in range(20)])
    (here / "empty").mkdir()
    made = {}
    for name in ("broker", "damaged", "many", "empty"):
        made[name] = here / f"{name}.html"
        kstore.report(GOLDEN / "broker" / "data" if name == "broker" else here / name).save(made[name])
    return made


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["broker", "damaged", "many", "empty"])
def test_how_it_looks(browser: Any, pages: dict[str, Path], name: str, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on(
        "request", lambda request: said.append(request.url) if not request.url.startswith("file:") else None
    )
    page.add_init_script(WATCH)
    page.goto(pages[name].as_uri())
    page.wait_for_function("document.getElementById('theme').disabled === false")
    page.wait_for_timeout(300)
    assert (said, page.evaluate("window.moved")) == ([], 0)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    if directory := os.environ.get("KSTORE_SCREENSHOTS"):
        page.screenshot(path=f"{directory}/{name}-{width}-{scheme}.png", full_page=True)
    context.close()
    context = browser.new_context(color_scheme=scheme, bypass_csp=True)  # else axe may not run in the page
    page = context.new_page()
    page.goto(pages[name].as_uri())
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    context.close()


def test_the_keyboard_and_the_button(browser: Any, pages: dict[str, Path]) -> None:
    page = browser.new_page()
    page.goto(pages["broker"].as_uri())
    pictures = page.locator("canvas").count()
    assert pictures >= 6
    reached = set()
    for _ in range(100):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id"))
    assert {f"picture-{at}" for at in range(pictures)} <= reached
    for at in range(pictures):
        page.focus(f"#picture-{at}")
        said = []
        for key in ("ArrowRight", "ArrowLeft", "End", "Home"):
            page.keyboard.press(key)
            said.append(page.text_content(f"#said-{at}"))
        assert all(said)
        assert said[0] == said[3]
        page.keyboard.press("Escape")
        assert page.text_content(f"#said-{at}") == ""
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
