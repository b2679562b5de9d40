"""What reaches a terminal: our colours, and nothing else that it acts on."""

from __future__ import annotations

import pytest

from cudnn_doctor.report.style import Style, visible


@pytest.mark.parametrize(
    "text", ["\x1b]0;title\x07", "\x1b[2J", "\x9b2J", "\r", "\x1b[8m", "\u202e"]
)
@pytest.mark.parametrize("colour", [True, False])
def test_names_of_others_do_nothing(text: str, colour: bool) -> None:
    style = Style(colour=colour)
    shown = style.plain(style.paint(f"a {text} name", "bold", "red"))
    assert shown == style.paint(f"a {text.encode('unicode_escape').decode()} name", "bold", "red")


def test_what_can_be_read_stays() -> None:
    text = "\N{CHECK MARK} Ünï\n\tcudnn 9.10.2 \N{MIDDLE DOT} 日本"
    assert visible(text) == text
    assert Style().plain(text) == text
