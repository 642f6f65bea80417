"""Amounts, bars and rows as they are printed."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbatch_router.cli import _render as render
from sbatch_router.core.tres import UNKNOWN

A = render.ASCII


def drawn(*args: Any) -> str:
    return "".join(text for text, _ in render.bar(*args, 10, A))


@pytest.mark.parametrize(
    ("limit", "used", "mine", "queued", "text"),
    [
        (100, 0, 0, 0, ".........."),
        (100, 50, 0, 0, "=====....."),
        (100, 50, 50, 0, "#####....."),
        (100, 50, 20, 30, "##===+++.."),
        # What is there shows, and a pool that is not full does not look it.
        (1000, 1, 1, 0, "#........."),
        (1000, 999, 0, 0, "=========."),
        (1000, 999, 1, 0, "#========."),
        (100, 100, 0, 50, "=========="),
        (100, 150, 10, 0, "#========="),
        (0, 0, 0, 0, "----------"),
        (None, 5, 0, 0, "          "),
        (100, UNKNOWN, UNKNOWN, 0, "??????????"),
        (100, 50, UNKNOWN, 0, "=====....."),
        # More of mine than is used: an old snapshot.
        (100, 10, 50, 0, "#........."),
    ],
)
def test_bar(limit: object, used: object, mine: object, queued: int, text: str) -> None:
    assert drawn(limit, used, mine, queued) == text


@given(
    st.integers(1, 10**9), st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9),
    st.integers(4, 30),
)  # fmt: skip
def test_bar_is_as_wide_as_it_should_be(
    limit: int, used: int, mine: int, queued: int, width: int
) -> None:
    text = "".join(part for part, _ in render.bar(limit, used, mine, queued, width, A))
    assert len(text) == width
    assert ("." in text) == (min(used, 2 * limit) + queued < limit), text
    assert ("#" in text) == (min(mine, used) > 0)


ROWS = [
    render.Row("mem", 320000, 256000, 6000, 100000, "lacks 62.5G", "mem", "GrpTRES", True),
    render.Row("gres/gpu", 4, 1, 0, 0, "asks 1", "gres/gpu", "GrpTRES"),
]


def lines(width: int, rows: list[render.Row]) -> list[str]:
    screen = render.Screen(plain=True, width=width)
    return [text.plain for text in render.table(rows, screen)]


def test_table_at_80() -> None:
    assert lines(80, ROWS) == [
        "  x mem      #=============+++  250G of 312.5G  5.85G yours +97.65G  lacks 62.5G",
        "    gres/gpu ====.............          1 of 4  0 yours              asks 1",
    ]


@pytest.mark.parametrize("width", [40, 60, 72, 80, 100])
def test_table_is_never_too_wide(width: int) -> None:
    # Below 60 columns the bar goes, and a terminal breaks what is left.
    assert all(len(line) <= max(width, 60) for line in lines(width, ROWS))


def test_text_is_made_harmless() -> None:
    assert render.clean("a\x1b[31mb\n\udcff") == "a\\x1b[31mb\\n\\udcff"


def test_ascii_where_the_output_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert render.Screen().signs == render.ASCII
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("LC_ALL", "en_US.UTF-8")
    assert render.Screen().signs == render.UNICODE
    assert render.Screen(plain=True).signs == render.ASCII
    # Python takes UTF-8 in the C locale, the terminal need not.
    monkeypatch.setenv("LC_ALL", "C")
    assert render.Screen().signs == render.ASCII


@given(st.text("ab -/:", max_size=200), st.integers(40, 100))
def test_a_hanging_line_keeps_its_words(text: str, width: int) -> None:
    rows = [row.plain for row in render.hanging("  cause    x" + text, width, 11)]
    assert " ".join(rows).split() == ("  cause    x" + text).split()
    assert rows[0].startswith("  cause")
    assert all(row.startswith(" " * 11) and row[11] != " " for row in rows[1:])
    longest = max(map(len, ("x" + text).split()))
    assert all(len(row) <= max(width, 11 + longest) for row in rows)
