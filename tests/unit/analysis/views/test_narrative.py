"""Texts of a definition as HTML."""

from __future__ import annotations

from analysis.views.narrative import paragraph_html


def test_a_paragraph() -> None:
    assert paragraph_html("`a` - b < c") == "<p><code>a</code> - b &lt; c</p>"


def test_a_list_with_items_of_several_lines() -> None:
    items = "<li><code>a</code> is\n  one - the first</li><li>b</li>"
    assert paragraph_html("- `a` is\n  one - the first\n- b") == f"<ul>{items}</ul>"
