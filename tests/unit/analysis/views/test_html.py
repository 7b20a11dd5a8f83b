"""Tests of HTML made from texts of definitions and records."""

from __future__ import annotations

import pytest

from analysis.views.html import definition_text_html


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("In `aws-gp3` it takes 2", "In <code>aws-gp3</code> it takes 2"),
        (
            "`grep -c '<a>' b` and `wc`",
            "<code>grep -c &#x27;&lt;a&gt;&#x27; b</code> and <code>wc</code>",
        ),
        ("<b>one ` alone", "&lt;b&gt;one ` alone"),
    ],
)
def test_code_stands_between_backticks_and_all_is_escaped(text: str, html: str) -> None:
    assert definition_text_html(text) == html
