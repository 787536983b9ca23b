"""The page about lessons names every lesson and every command."""

from __future__ import annotations

from pathlib import Path

from minibroker.lessons import LESSONS
from minibroker.lessons.commands import FORMS

PAGE = (Path(__file__).parent.parent.parent / "docs/lessons.md").read_text(encoding="utf-8")


def test_every_lesson_and_command_is_on_the_page() -> None:
    assert not [name for name in LESSONS if f"| `{name}` |" not in PAGE]
    assert not [form for form, what in FORMS.items() if f"| `{form}` | {what} |" not in PAGE]
