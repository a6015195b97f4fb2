"""The report in a real Chromium, opened from the file system."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agl.core import Score
from agl.policies.scripted import Oracle, Random
from envs.grit.env import GritEnv
from envs.grit.items import write as write_items
from eval.report.page import write
from eval.runner import evaluate
from tests.report_runs import MEGABYTE, RTL, SCRIPT, episode, lost, write_run, write_training


class Reader:
    """A page with everything it complained about and asked for."""

    def __init__(self, browser: Any, run: Path, address: str = "", **options: Any) -> None:
        file = Path(write(run).file).resolve()
        self.page = browser.new_page(**{"viewport": {"width": 1300, "height": 900}, **options})
        self.page.set_default_timeout(10_000)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri() + address)
        self._own = file.as_uri()

    def open(self, address: str, wait: str) -> None:
        self.page.evaluate("address => { location.hash = address }", address)
        self.page.locator(wait).first.wait_for()

    def finish(self) -> None:
        """Assert that nothing was logged, and nothing but the file itself was loaded."""
        assert self.complaints == []
        assert {request.partition("#")[0] for request in self.requests} == {self._own}
        self.page.close()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    long = episode("long", events=(episode().events[0].model_copy(update={"observation": MEGABYTE}),))
    return write_run(tmp_path_factory.mktemp("hostile"), [episode(SCRIPT), episode(RTL), long, lost("t-lost")])


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two policies, two attempts each, at GRIT items whose nodes have hostile names."""
    folder = tmp_path_factory.mktemp("groups")
    items = []
    for task in GritEnv.tasks("mini", limit=12):
        names = (SCRIPT, "\u202eRTL override", "שלום", *task.nodes[3:])
        items.append(task.model_copy(update={"nodes": names}))
    write_items(items, folder / "items.jsonl")
    run = folder / "run"
    for policy in (Oracle(), Random()):
        evaluate("grit", policy, data=str(folder / "items.jsonl"), attempts=2, out=run / policy.name)
    return run


@pytest.fixture(scope="module")
def browser(groups: Path) -> Iterator[Any]:
    # The runs come first: under Playwright an event loop runs in this thread, in which no episode could be played.
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


def test_hostile_names_stay_text(browser: Any, hostile: Path) -> None:
    reader = Reader(browser, hostile)
    page = reader.page
    for address, wait in (
        ("#episodes", ".row"),
        ("#episode/0", ".transcript"),
        ("#group/1", ".members"),
        ("#episode/3", ".score"),
    ):
        reader.open(address, wait)
        assert page.title().startswith("hostile")
        assert page.locator("body img, iframe, b, body script:not([type]) ~ script").count() == 0
    reader.open("#episode/1", ".transcript")
    shown = page.locator("#page-episode").inner_text()
    assert "שלום" in shown
    assert "\\u202e" in shown
    assert "\u202e" not in shown
    reader.open("#episode/3", "#page-episode .score >> text=server down")
    reader.finish()


def test_a_megabyte_begins_short(browser: Any, hostile: Path) -> None:
    reader = Reader(browser, hostile, "#episode/2")
    more = reader.page.get_by_role("button", name="Show all 1,")
    more.wait_for()
    assert "the very end" not in reader.page.locator(".actions").inner_text()
    more.click()
    assert "<b>bold</b> & \\x1b[2J\\u2028" in reader.page.locator(".actions").inner_text()
    assert reader.page.locator(".actions").inner_text().rstrip().endswith("the very end")
    reader.finish()


def test_filters_hold_in_the_address(browser: Any, groups: Path) -> None:
    reader = Reader(browser, groups, "#episodes")
    page = reader.page
    matches = page.locator("#matches")
    assert matches.inner_text().startswith("48 of 48 episodes")
    page.get_by_label("policy", exact=True).select_option("oracle")
    page.get_by_label("task", exact=True).select_option("bfs")
    assert matches.inner_text() == "4 of 48 episodes, mean score 1.000"
    page.fill("#find", "no such task")
    assert matches.inner_text() == "0 of 48 episodes"
    page.fill("#find", "BFS")
    assert matches.inner_text().startswith("4 of 48")
    page.locator(".row").nth(1).click()
    page.locator(".transcript").wait_for()
    page.go_back()
    page.locator(".row").first.wait_for()
    assert matches.inner_text().startswith("4 of 48")
    again = Reader(browser, groups, page.evaluate("location.hash"))
    assert again.page.locator("#matches").inner_text().startswith("4 of 48")
    again.page.get_by_role("button", name="Clear").click()
    assert again.page.locator("#matches").inner_text().startswith("48 of 48")
    again.page.get_by_title("Order by reward").click()
    rewards = again.page.locator(".row > :nth-child(5)").all_inner_texts()
    assert rewards == sorted(rewards, key=float, reverse=True)
    again.finish()
    reader.finish()


def test_everything_works_by_keyboard(browser: Any, groups: Path) -> None:
    reader = Reader(browser, groups)
    page = reader.page
    press = page.keyboard.press
    press("2")
    page.locator(".row").first.wait_for()
    for key in ("ArrowDown", "ArrowDown", "j"):
        press(key)
    assert page.locator('.row[aria-selected="true"]').get_attribute("id") == "row3"
    press("Enter")
    page.locator(".transcript").wait_for()
    assert page.evaluate("location.hash") == "#episode/3"
    press("j")
    page.wait_for_function("location.hash === '#episode/4'")
    page.wait_for_function("document.querySelector('#page-episode h1').textContent.includes('attempt 0')")
    press("g")
    page.locator(".members .card").first.wait_for()
    assert page.locator(".members .card").count() == 4
    press("u")
    page.locator(".row").first.wait_for()
    press("/")
    page.wait_for_function("document.activeElement.id === 'find'")
    page.keyboard.type("tsp")
    press("Escape")
    press("?")
    assert page.locator("#keys").evaluate("dialog => dialog.open")
    press("Escape")
    press("End")
    press("1")
    page.locator("#page-overview").wait_for()
    reader.finish()


def test_an_episode_shows_who_wrote_what_and_the_graph(browser: Any, groups: Path) -> None:
    reader = Reader(browser, groups, "#episodes?policy=oracle&task=shortest_path")
    page = reader.page
    page.locator(".row").first.click()
    page.locator(".graph").wait_for()
    colours = {
        source: page.locator(f".turn.{source}").first.evaluate("turn => getComputedStyle(turn).backgroundColor")
        for source in ("prompt", "sampled", "injected")
    }
    assert len(set(colours.values())) == 3
    assert page.locator(".actions .event").count() == 2
    assert "true answer" in page.locator(".side").inner_text()
    labels = page.locator(".graph text").all_text_contents()
    assert any(label.startswith("</script><script") for label in labels)
    assert any(label.startswith("\\u202eRTL") for label in labels)
    assert (
        page.locator(".graph circle.v").count()
        == page.locator(".graph title").count() - page.locator(".graph .e").count()
    )
    reader.finish()


def test_members_stand_side_by_side(browser: Any, groups: Path) -> None:
    reader = Reader(browser, groups, "#group/0")
    page = reader.page
    page.locator(".members .card").first.wait_for()
    tops = {round(card.bounding_box()["y"]) for card in page.locator(".members .card").all()}
    assert len(tops) == 1
    heads = page.locator("#page-group thead a").all_inner_texts()
    assert heads == ["oracle, attempt 0", "oracle, attempt 1", "random, attempt 0", "random, attempt 1"]
    assert "differs" in (page.locator("#page-group tr", has_text="score").first.get_attribute("class") or "")
    reader.finish()


def test_light_and_dark(browser: Any, groups: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    seen = {}
    for scheme in ("light", "dark"):
        reader = Reader(browser, groups, color_scheme=scheme)
        seen[scheme] = reader.page.evaluate(ground)
        reader.page.keyboard.press("t")
        assert reader.page.evaluate(ground) == seen.get("light")
        reader.page.keyboard.press("t")
        dark = reader.page.evaluate(ground)
        assert dark != seen["light"]
        reader.page.reload()
        assert reader.page.evaluate(ground) == dark
        reader.finish()
    assert seen["light"] != seen["dark"] == dark


def test_every_page_fits_a_telephone(browser: Any, groups: Path, hostile: Path) -> None:
    for run in (groups, hostile):
        reader = Reader(browser, run, viewport={"width": 400, "height": 800})
        for address, wait in (
            ("#overview", "figure"),
            ("#episodes", ".row"),
            ("#episode/0", ".transcript"),
            ("#group/0", ".members"),
        ):
            reader.open(address, wait)
            assert reader.page.evaluate("document.documentElement.scrollWidth") <= 400, address
        reader.finish()


def test_pages_print(browser: Any, groups: Path) -> None:
    reader = Reader(browser, groups)
    sizes = {}
    for address, wait in (("#overview", "figure"), ("#episodes", ".row"), ("#episode/0", ".transcript")):
        reader.open(address, wait)
        sizes[address] = len(reader.page.pdf(format="A4"))
    assert min(sizes.values()) > 10_000, sizes
    reader.open("#episodes", ".row")
    reader.page.emulate_media(media="print")
    reader.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert reader.page.locator(".row").count() == 48
    assert not reader.page.locator("header").is_visible()
    assert reader.page.locator("#list").bounding_box()["height"] > 48 * 30
    reader.finish()


def test_a_training_opens(browser: Any, tmp_path: Path) -> None:
    reader = Reader(browser, write_training(tmp_path / "training"))
    titles = reader.page.locator("figcaption").all_inner_texts()
    assert {"Reward and score", "Entropy of the sampled tokens", "Distinct action sequences per group"} <= set(titles)
    reader.open("#group/1", ".members")
    assert reader.page.locator(".members .card").count() == 3
    reader.finish()


def test_five_thousand_episodes_open_in_two_seconds(browser: Any, tmp_path: Path) -> None:
    score = Score(total=0.5, reward=0.5, parts={"depth": 0.25})
    episodes = (episode(f"t-{i:05}", score=score) for i in range(5_000))
    reader = Reader(browser, write_run(tmp_path, episodes), "#episodes")
    page = reader.page
    page.locator(".row").first.wait_for()
    seconds = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd / 1000")
    assert seconds < 2, seconds
    assert page.locator(".row").count() < 80
    page.locator("#window").evaluate("box => { box.scrollTop = box.scrollHeight }")
    page.locator("#row4999").wait_for()
    page.locator("#row4999").click()
    page.locator(".transcript").wait_for()
    assert page.locator("#page-episode h1").inner_text().startswith("t-04999")
    reader.finish()
