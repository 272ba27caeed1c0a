"""The site in a real browser, from the file system: desktop and phone, both themes."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.evidence.verification import find_bundles
from tests.tools.html.browser import SCREENS, axe_source, browser, violations
from tests.tools.html.evidence import bundles, write


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The address of the index and of each bundle's page, by name."""
    folder = tmp_path_factory.mktemp("browser")
    named = bundles(folder)
    write(find_bundles([folder / "evidence"]), folder / "site")
    places = {path.stem: path.as_uri() for path in (folder / "site").rglob("*.html")}
    runs = {name: places[bundle.name] for name, bundle in named.items() if bundle.name in places}
    index = folder / "site" / "index.html"
    claim = folder / "site" / "F-DEMO-SORT-001" / "index.html"
    return {"index": index.as_uri(), "claim": claim.as_uri(), "UNREADABLE": places["bundle"], **runs}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Chromium, started once."""
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def contexts(chromium: Any) -> Callable[..., Any]:
    """A page for each set of settings, because a new one takes a second."""
    return functools.cache(lambda **settings: chromium.new_context(**settings).new_page())


@pytest.fixture
def show(contexts: Callable[..., Any]) -> Iterator[Any]:
    """Open a page; at the end assert that it requested nothing and logged no error."""
    complaints: list[str] = []
    visited = {"about:blank"}
    heard = {
        "console": lambda message: complaints.append(message.text),
        "pageerror": lambda error: complaints.append(str(error)),
        "dialog": lambda dialog: complaints.append(dialog.message),
        "request": lambda request: request.url in visited or complaints.append(f"asked for {request.url}"),
    }
    used = set()

    def shown(address: str, **settings: Any) -> Any:
        page = contexts(**settings)
        if page not in used:
            used.add(page)
            for event, handler in heard.items():
                page.on(event, handler)
        visited.add(address)
        page.set_viewport_size({"width": 1280, "height": 900})
        page.emulate_media(color_scheme="light")
        page.goto("about:blank")  # a page that is already open would not be loaded again
        page.goto(address)
        return page

    yield shown
    for page in used:
        for event, handler in heard.items():
            page.remove_listener(event, handler)
    assert complaints == []


def test_every_page_fits_every_screen(pages: dict[str, str], show: Any) -> None:
    """No content is wider than the screen, no name covers its number, and the verdict is visible without scrolling."""
    for name, address in pages.items():
        page = show(address)
        for width, theme in (*SCREENS, (820, "light")):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=theme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
            if name != "index":
                wide = page.locator(".q > *").evaluate_all(
                    "all => all.filter(one => one.scrollWidth > one.clientWidth + 1 && one.clientWidth)"
                    ".map(one => one.textContent)"
                )
                assert wide == [], (name, width)
                place = page.locator(".badge.big").bounding_box()
                assert 0 <= place["y"] < 300, (name, width)
            if (details := page.locator("#clauses")).count():
                assert details.bounding_box()["y"] < 4 * 900, (name, width)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("PASS", "PASS"), ("FAIL", "FAIL"), ("VOID", "VOID"), ("NOT_MEASURED", "NOT_MEASURED"), ("UNPROVEN", "PASS"),
        ("TAMPERED", "UNSOUND"), ("UNREADABLE", "UNSOUND"), ("claim", "FALSIFIED"),
    ],
)  # fmt: skip
def test_the_verdict_is_the_first_word(pages: dict[str, str], show: Any, name: str, word: str) -> None:
    """The verdict is the first word in the page and in its title."""
    page = show(pages[name])
    assert page.locator(".badge").first.inner_text() == word
    assert page.title().split()[0] == word


def test_a_hostile_title_is_only_text(pages: dict[str, str], show: Any) -> None:
    """The title opens no dialog and adds no element. `show` asserts that nothing was requested."""
    page = show(pages["HOSTILE"])
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1
    heading = page.locator("h1").inner_text()
    assert heading.startswith("</title></script><script>alert(1)</script>")
    assert heading.endswith(r"\x1b[31m\u202e{{7*7}}")


def test_everything_is_there_without_a_script(pages: dict[str, str], show: Any) -> None:
    """Controls that need a script are absent. Filters work without one."""
    page = show(pages["FAIL"], java_script_enabled=False)
    assert not page.locator(".find").is_visible()
    text = page.locator("main").inner_text()
    for expected in ("The sorter returns every item", "nothing-lost", "forgets-one", "harness run F-DEMO-SORT-001"):
        assert expected in text
    index = show(pages["index"], java_script_enabled=False)
    rows = index.locator("li.is-PASS")
    assert rows.first.is_visible()
    index.get_by_label("PASS 3").uncheck()
    assert not any(rows.nth(number).is_visible() for number in range(rows.count()))
    assert index.locator("li.is-FAIL").first.is_visible()


def test_the_index_is_searched_as_one_types(pages: dict[str, str], show: Any) -> None:
    """All words must match. The page shows the number of remaining bundles."""
    page = show(pages["index"])
    page.get_by_label("Find").fill("sorting VOID")
    assert [row.inner_text().split()[0] for row in page.locator(".bundles li:visible").all()] == ["VOID"]
    assert page.locator("output").inner_text() == "1 bundle"
    page.get_by_label("Find").fill("")
    assert page.locator(".bundles li:visible").count() == 9


def test_the_logs_are_searched(pages: dict[str, str], show: Any) -> None:
    """Each match is marked. Colours are removed, and markup is shown as text."""
    page = show(pages["FAIL"])
    log = page.get_by_role("region", name="stdout")
    assert log.text_content().startswith("step 1\nstep 2\nMemoryError: <b>no</b>\n")
    page.get_by_label("Find in the logs").fill("memoryerror")
    assert page.locator("pre.log mark").all_inner_texts() == ["MemoryError", "MemoryError"]
    assert page.locator("output").inner_text() == "2 places"


def test_the_contents_stay_in_sight(pages: dict[str, str], show: Any) -> None:
    """The list of contents needs no script, and does not cover the section that it leads to."""
    page = show(pages["FAIL"], java_script_enabled=False)
    for width, _ in SCREENS:
        page.set_viewport_size({"width": width, "height": 900})
        contents = page.locator("nav.contents")
        for link in contents.locator("li a").all():
            link.click()
            place = contents.bounding_box()
            target = page.locator(link.get_attribute("href")).bounding_box()
            assert 0 <= place["y"] < 1
            assert target["y"] >= place["height"], (width, link.inner_text())


def test_commands_are_copied(pages: dict[str, str], show: Any) -> None:
    """Each command and log has a button. Without a script there is none."""
    page = show(pages["PASS"], permissions=("clipboard-read", "clipboard-write"))
    page.get_by_role("button", name="Copy: Command that verifies the bundle").click()
    page.get_by_text("Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == "harness verify evidence/DEMO-1/F-DEMO-SORT-001/run-pass"
    assert show(pages["PASS"], java_script_enabled=False).locator("button").count() == 0


def test_it_can_be_read_with_the_keyboard_alone(pages: dict[str, str], show: Any) -> None:
    """The first tab stop leads to the verdict's reasons, folded parts open, and long texts scroll."""
    page = show(pages["PASS"])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the verdict"
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("#main$"))  # the browser reports it a moment later
    summary = page.locator("summary", has_text="Types and signs")
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator("details[open] code", has_text="given.type").is_visible()


def test_axe_finds_nothing(pages: dict[str, str], contexts: Callable[..., Any], pytestconfig: pytest.Config) -> None:
    """Desktop and phone are tested, each in one theme, with everything unfolded."""
    source = axe_source(pytestconfig.cache.mkdir("axe"))
    for name in ("index", "claim", "LONG", "FAIL", "VOID", "NOT_MEASURED", "TAMPERED", "UNREADABLE"):
        assert violations(contexts(bypass_csp=True), pages[name], source) == {}, name
