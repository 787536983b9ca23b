"""A lesson in a real browser: played there and at the terminal by turns, back, answers; and the list of all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from minibroker import Broker
from minibroker.lessons import LESSONS
from tests.watch.test_keys import Terminal, terminal

from .browsing import NARROW, WIDE, Tab, need_browser
from .test_page import address_of

need_browser()

pytestmark = [pytest.mark.interop, pytest.mark.outside]
PAGE = r"http://[\d.:]+/#/lessons"
GONE = re.compile("^error: Failed to load resource: net::")  # while brokers start anew


@contextmanager
def lesson(browser: Any, name: str, **given: Any) -> Iterator[tuple[Terminal, Tab, Any]]:
    """A lesson of which the first step has been played at the terminal, and its page."""
    with terminal("lesson", name) as typing:
        typing.type("\n")
        address = typing.wait_for(PAGE).removeprefix("http://").partition("/")[0]
        with Tab(browser, address, **given) as tab:
            page = tab.open("/#/lessons")
            page.get_by_text("step 2 of").wait_for()
            yield typing, tab, page


def troubles(tab: Tab) -> list[str]:
    return [each for each in tab.troubles if not GONE.match(each)]


def next_step(page: Any) -> Any:
    return page.locator(".do.on")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_lesson_is_played_to_its_end(browser: Any, scheme: str, size: dict[str, int]) -> None:
    with lesson(browser, "high-watermark", size=size, scheme=scheme) as (typing, tab, page):
        assert not tab.has_no_room_to_the_side()
        next_step(page).click()
        page.get_by_text("step 3 of 6").wait_for()
        page.get_by_role(
            "img", name=re.compile("Broker 1, leader in epoch 0: .* high watermark 0, log end 1")
        ).wait_for()
        page.get_by_role("button", name="1", exact=True).click()  # the second of 0 and 1
        page.get_by_text("No: the followers know that they have it, and the leader does not.").wait_for()
        typing.wait_for(r"2   \(in the page\).*No: the followers know")
        assert not tab.has_no_room_to_the_side()
        for place in range(5, 7):
            next_step(page).click()
            page.get_by_text(f"step {place} of 6").wait_for()
        next_step(page).click()
        page.get_by_text("the end", exact=True).wait_for()
        assert next_step(page).count() == 0
        typing.wait_for(r"\[Enter to end, b: back\] ")
        page.get_by_text("5 steps before").click()
        page.get_by_text("The record is in the leader's log: its log end offset, the LEO, is 1.").wait_for()
        assert not tab.has_no_room_to_the_side()
        assert tab.troubles == []


def test_back_comes_again_without_being_loaded_anew(browser: Any) -> None:
    with lesson(browser, "high-watermark") as (typing, tab, page):
        page.evaluate("window.isTheSame = true")
        next_step(page).click()
        page.get_by_text("step 3 of 6").wait_for()
        page.get_by_role("button", name="back").click()
        typing.wait_for(r"b   \(in the page\).*Back to before step 2 of 6.*\[2 of 6: Enter\] ")
        page.get_by_text("step 2 of 6").wait_for()
        page.locator(".link.live").wait_for()
        page.get_by_role("img", name=re.compile("Broker 1, leader in epoch 0: .* log end 0")).wait_for()
        assert page.get_by_role("button", name="back").count() == 0  # there were no brokers before
        next_step(page).click()
        page.get_by_text("step 3 of 6").wait_for()
        typing.wait_for(r"\[3 of 6: 1-2, or Enter\] ")
        typing.type("b\n")
        page.get_by_text("step 2 of 6").wait_for()
        assert page.evaluate("window.isTheSame")
        assert troubles(tab) == []


def test_what_is_typed_shows_in_the_page_and_keys_do_the_same(browser: Any) -> None:
    with lesson(browser, "high-watermark") as (typing, tab, page):
        typing.wait_for(r"\[2 of 6: Enter\] ")
        typing.type("\n")
        page.get_by_text("step 3 of 6").wait_for()
        typing.wait_for(r"\[3 of 6: 1-2, or Enter\] ")
        typing.type("1\n")
        page.get_by_text("Right: nobody has asked yet for what comes behind it").wait_for()
        page.keyboard.press("n")
        page.get_by_text("step 5 of 6").wait_for()
        typing.wait_for(r"n   \(in the page\)")
        page.keyboard.press("b")
        page.get_by_text("step 4 of 6").wait_for()
        page.get_by_text("Right: nobody has asked yet for what comes behind it").wait_for()
        page.get_by_text("words", exact=True).click()
        page.locator("details[open] b", has_text="follower").wait_for()
        assert troubles(tab) == []


def test_a_lesson_that_ends_brokers_is_played_at_one_that_stays(browser: Any) -> None:
    with lesson(browser, "unclean-election") as (typing, tab, page):
        while next_step(page).count():
            place = int(re.findall(r"step (\d+) of", page.locator(".lecture").inner_text())[0])
            next_step(page).click()
            page.get_by_text(re.compile(f"step {place + 1} of|^the end$")).wait_for()
        typing.wait_for(r"\[Enter to end, b: back\] ")
        assert page.locator(".lecture .warn").count() == 0
        assert troubles(tab) == []


def test_who_may_only_look_sees_the_lesson_and_cannot_go_on(browser: Any) -> None:
    def without(route: Any) -> None:
        answer = route.fetch()
        text = re.sub(r'(minibroker-token" content=")\w+', r"\1", answer.text())
        route.fulfill(response=answer, body=text.replace('why-not" content="', 'why-not" content="you may look only'))

    with lesson(browser, "high-watermark") as (typing, tab, page):
        page.route(f"{tab.origin}/", without)
        page.reload()
        page.get_by_text("read only").wait_for()
        button = next_step(page)
        button.wait_for()
        assert button.is_disabled()
        button.click(force=True)
        page.keyboard.press("n")
        typing.wait_for(r"\[2 of 6: Enter\] ")
        typing.type("\n")
        page.get_by_text("step 3 of 6").wait_for()
        assert "in the page" not in typing.seen
        assert tab.troubles == []


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_brokers_of_no_lesson_list_them_all(browser: Any, size: dict[str, int]) -> None:
    with Broker() as broker, Tab(browser, address_of(broker), size=size) as tab:
        tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = tab.open()
        assert not [each for each in tab.requests if "lesson" in each]
        page.keyboard.press("6")
        page.get_by_role("heading", name=f"{len(LESSONS)} lessons").wait_for()
        page.get_by_text("The high watermark moves on the second fetch").wait_for()
        page.get_by_role("button", name="Copy minibroker lesson high-watermark").click()
        assert page.evaluate("navigator.clipboard.readText()") == "minibroker lesson high-watermark"
        assert not tab.has_no_room_to_the_side()
        assert tab.troubles == []
