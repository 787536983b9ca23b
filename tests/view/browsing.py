"""A real browser for tests of the page: chromium, driven by Playwright; skipped where one of them is missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = "chromium"
WIDE = {"width": 1280, "height": 900}
NARROW = {"width": 390, "height": 844}


def need_browser() -> None:
    """Skip the module that says it at its top, in one line, where there is no browser."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        pytest.skip("playwright is not there: no browser was tried", allow_module_level=True)
    if shutil.which(CHROMIUM) is None:
        pytest.skip(f"{CHROMIUM} is not there: no browser was tried", allow_module_level=True)


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which(CHROMIUM), args=as_root)
        yield browser
        browser.close()


class Tab:
    """A page that is open, and what went wrong in it."""

    def __init__(self, browser: Any, address: str, *, size: dict[str, int] = WIDE, scheme: str = "light"):
        self.context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
        self.page = self.context.new_page()
        self.origin = f"http://{address}"
        self.troubles: list[str] = []  # what the console says, exceptions, dialogs
        self.requests: list[str] = []
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.troubles.append(f"exception: {error}"))
        self.page.on("dialog", lambda dialog: (self.troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(f"{message.type}: {message.text}")

    def open(self, path: str = "/") -> Any:
        self.page.goto(self.origin + path, wait_until="domcontentloaded")
        self.page.wait_for_selector(".link.live")
        return self.page

    def has_no_room_to_the_side(self) -> bool:
        """Whether anything is wider than the window."""
        wider: bool = self.page.evaluate("document.documentElement.scrollWidth > innerWidth")
        return wider

    def __enter__(self) -> Tab:
        return self

    def __exit__(self, *failure: object) -> None:
        self.context.close()
