"""Amounts in words: one spelling, that never makes free room look larger than it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbatch_router.core import spell
from sbatch_router.core.tres import UNKNOWN, parse_mem


@pytest.mark.parametrize(
    ("tres", "value", "kind", "text"),
    [
        ("mem", 320000, "", "312.5G"),
        ("mem", 250000, "", "244.14G"),
        ("mem", 1023, "", "1023M"),
        ("mem", 1024, "", "1G"),
        ("mem", 1025, "", "1G"),
        ("mem", 5760000, "", "5625G"),
        ("mem", 10 * 2**20 - 1, "", "10239.99G"),
        ("mem", 10 * 2**20, "", "10T"),
        ("mem", 10 * 2**30, "", "10P"),
        ("mem", 0, "", "0"),
        ("mem", -2048, "", "-2G"),
        ("cpu", 80, "", "80"),
        ("cpu", 12345678, "GrpTRESMins", "12.3M"),
        ("", 1440, "MaxWallPJ", "1d"),
        ("", 90, "MaxTime", "1h30m"),
        ("", 2**32 - 1, "MaxTime", "unlimited"),
        ("", 2**32 - 1, "MaxWallPJ", "unlimited"),
        ("cpu", 2 * (2**32 - 1), "MaxTRESMinsPJ", "unlimited"),
        ("mem", 2**32 - 1, "GrpTRES", "4095.99T"),
        ("cpu", None, "", "unlimited"),
        ("mem", UNKNOWN, "", "?"),
    ],
)
def test_amount(tres: str, value: object, kind: str, text: str) -> None:
    assert spell.amount(tres, value, kind) == text


@given(st.integers(0, 2**45))
def test_memory_is_cut_and_never_rounded_up(mib: int) -> None:
    short = spell.short_mem(mib)
    # parse_mem rounds up, which a text of two decimals may need.
    assert parse_mem(short) - 1 <= mib < parse_mem(short) * 1.01 + 1
    assert len(short) <= 9
    assert parse_mem(spell.exact_mem(mib)) == mib


@pytest.mark.parametrize(
    ("mib", "text"),
    [(320000, "312.5G"), (250000, "250000M"), (2**20, "1T"), (65537, "65537M"), (0, "0M")],
)
def test_exact_memory(mib: int, text: str) -> None:
    assert spell.exact_mem(mib) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0s"),
        (59.6, "1m"),
        (3600, "1h"),
        (3661, "1h1m"),
        (90000, "1d1h"),
        (86401, "1d"),
        (-5, "0s"),
    ],
)
def test_seconds(value: float, text: str) -> None:
    assert spell.seconds(value) == text
