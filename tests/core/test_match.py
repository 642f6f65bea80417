"""Conditions on facts, and the shell patterns in them."""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbatch_router.core.match import glob, matches, snakemake_facts, why_not
from sbatch_router.core.policy import Test as Condition
from sbatch_router.core.tres import UNKNOWN


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("", "", True),
        ("", "a", False),
        ("*", "", True),
        ("**", "abc", True),
        ("a*c", "abbc", True),
        ("a*c", "abbd", False),
        ("*a*b", "xaxbxb", True),
        ("?", "", False),
        ("?", "é", True),
        ("qc_[0-9]", "qc_7", True),
        ("qc_[!0-9]", "qc_7", False),
        ("[]]", "]", True),
        ("[!]]", "]", False),
        ("[a-]", "-", True),
        ("[", "[", True),
        ("[a", "[a", True),
        ("a[*]", "a*", True),
        ("a[*]", "ab", False),
        ("A", "a", False),
        ("a.c", "abc", False),
        ("\\*", "\\x", True),
        ("a\n*", "a\nb\n", True),
    ],
)
def test_glob(pattern: str, text: str, expected: bool) -> None:
    assert glob(pattern, text) is expected


@given(
    st.text("ab[]!-*?.\n\\", max_size=9).filter(lambda p: not re.search(r"\[[^\]]*-", p)),
    st.text("ab[]!.\n\\", max_size=9),
)
def test_glob_is_fnmatch(pattern: str, text: str) -> None:
    """But for sets with ranges, where fnmatch has quirks about reversed ones."""
    assert glob(pattern, text) == fnmatch.fnmatchcase(text, pattern)


@given(st.characters(), st.characters(), st.characters())
def test_ranges(low: str, high: str, char: str) -> None:
    if low not in "!]" and high != "]":
        assert glob(f"[{low}-{high}]", char) == (low <= char <= high)


def test_glob_takes_no_exponential_time() -> None:
    start = time.perf_counter()
    assert not glob("*a" * 200 + "b", "a" * 2000)
    assert time.perf_counter() - start < 5


def test_empty_conditions_hold() -> None:
    assert matches({}, {})
    assert why_not({}, {}) == ""


@pytest.mark.parametrize("facts", [{}, {"mem": UNKNOWN}])
@pytest.mark.parametrize("test", [Condition("==", (1,), "1"), Condition("!=", (1,), "!=1")])
def test_an_unknown_fact_meets_no_test(facts: object, test: Condition) -> None:
    assert not matches({"mem": test}, facts)  # type: ignore[arg-type]
    assert why_not({"mem": test}, facts) == f"mem is not known (wanted {test.text})"  # type: ignore[arg-type]


@pytest.mark.parametrize("fact", ["4", True, (4,), object()])
def test_a_fact_of_the_wrong_type_meets_no_test(fact: object) -> None:
    assert not matches({"cpus": Condition("!=", (5,), "!=5")}, {"cpus": fact})


def test_text_tests_want_text() -> None:
    assert not matches({"user": Condition("!glob", ("a",), "!=a")}, {"user": 4})
    assert not matches({"user": Condition("!glob", ("a",), "!=a")}, {"user": None})


def test_unlimited_is_more_than_any_number() -> None:
    assert matches({"time": Condition(">", (10**12,), ">")}, {"time": None})
    assert not matches({"time": Condition("<=", (10**12,), "<=")}, {"time": None})
    assert matches({"time": Condition("==", (None,), "unlimited")}, {"time": None})


def test_case() -> None:
    upper = Condition("glob", ("gpu",), "GPU")
    assert matches({"partition": upper}, {"partition": "GPU"})
    assert matches({"gpu_type": upper}, {"gpu_type": frozenset(("Gpu",))})
    assert not matches({"user": upper}, {"user": "GPU"})


def test_why_not_names_the_first_failure() -> None:
    when = {
        "gpus": Condition("==", (0,), "0"),
        "mem": Condition(">", (1024,), ">1G"),
        "time": Condition("<=", (240,), "<=4h"),
        "rule": Condition("glob", ("qc_*",), "qc_*"),
    }
    facts = {"gpus": 0, "mem": 512, "time": None, "rule": ()}
    assert why_not(when, facts) == "mem is 512M (wanted >1G)"
    assert why_not(when, {**facts, "mem": 2048}) == "time is unlimited (wanted <=4h)"
    assert why_not(when, {**facts, "mem": 2048, "time": 90}) == "rule is none (wanted qc_*)"
    assert why_not(when, {**facts, "mem": 2048, "time": 300}) == "time is 300 min (wanted <=4h)"
    good = {**facts, "mem": 2048, "time": 1, "rule": ("qc_a", "z")}
    assert why_not(when, good) == ""
    assert matches(when, good)


def test_snakemake_facts() -> None:
    single = {"type": "single", "rule": "qc_a", "wildcards": {"sample": "A", "n": 3}, "attempt": 2}
    assert snakemake_facts(single) == {
        "rule": ("qc_a",),
        "wildcards.sample": "A",
        "wildcards.n": "3",
        "attempt": 2,
    }
    group = {"type": "group", "groupid": "g", "rules": ["qc_a", "trim"], "threads": 4}
    assert snakemake_facts(group) == {"rule": ("qc_a", "trim")}
    assert snakemake_facts({}) == {}
    assert snakemake_facts({"rule": 4, "wildcards": [], "attempt": "2"}) == {}


def test_imports_nothing_slow() -> None:
    code = (
        "import sys; before = set(sys.modules); import sbatch_router.core.match, "
        "sbatch_router.core.policy; print(*sorted(set(sys.modules) - before))"
    )
    found = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert [name for name in found if not name.startswith("sbatch_router")] == [
        "__future__",
        "_collections",
    ]
