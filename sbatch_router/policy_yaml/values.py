"""Single values of a policy: amounts, durations, dates, names. All raise ValueError.

The message of the ValueError is what was expected; the caller says what was found.
"""

from __future__ import annotations

import datetime
import re
from typing import Optional, Union

Number = Union[int, float]

_COUNT = re.compile(r"0|[1-9][0-9]{0,14}")
_MEM = re.compile(r"((?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,6})?)([KMGTP]?)", re.IGNORECASE)
_UNITS = re.compile(r"(?:(?:0|[1-9][0-9]{0,8})(?:\.[0-9]{1,3})?[dhms])+")
_PART = re.compile(r"([0-9.]+)([dhms])")
_CLOCK = re.compile(r"([0-9]{1,4}):([0-5][0-9]):([0-5][0-9])")
_DAYS = re.compile(
    r"([0-9]{1,5})-([01]?[0-9]|2[0-3])(?::([0-5][0-9])(?::([0-5][0-9]))?)?",
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NAME = re.compile(r"[^\s,/=\"'`;|&<>()\\\[\]{}*?$!%#:~^-][^\s,/=\"'`;|&<>()\\\[\]{}*?$!]{0,254}")

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_MIB = {"": 1, "K": 2**-10, "M": 1, "G": 2**10, "T": 2**20, "P": 2**30}

COUNT_EXPECTED = "a whole number such as 4"
MEM_EXPECTED = "an amount of memory such as 250G (K, M, G, T; a bare number is MiB)"
TIME_EXPECTED = "a time such as 30m, 4h, 1h30m, 2d or 1-00:00:00 (a bare number is minutes)"
DURATION_EXPECTED = "a duration in seconds, minutes, hours or days such as 5s, 2m, 1h, or 0"


def count(text: str) -> int:
    """A whole number, without sign, leading zero, exponent or underscore."""
    if not _COUNT.fullmatch(text):
        raise ValueError(COUNT_EXPECTED)
    return int(text)


def mem(text: str) -> Number:
    """MiB of ``250G``, ``312.5G``, ``4000`` (MiB, as for sbatch's --mem)."""
    found = _MEM.fullmatch(text)
    if not found:
        raise ValueError(MEM_EXPECTED)
    return _whole(float(found.group(1)) * _MIB[found.group(2).upper()])


def time(text: str) -> Optional[Number]:
    """Minutes of ``30m``, ``1h30m``, ``1-00:00:00``, ``90`` (as for --time); None: unlimited.

    Slurm reads ``1:30`` as 90 seconds, YAML 1.1 as the number 90, and people as an hour and
    a half: it is refused.
    """
    if text.lower() in ("unlimited", "infinite"):
        return None
    if _COUNT.fullmatch(text):
        return int(text)
    seconds = _seconds(text)
    if seconds is None:
        clock = _CLOCK.fullmatch(text)
        days = _DAYS.fullmatch(text)
        if clock:
            seconds = _sum(0, *clock.groups())
        elif days:
            seconds = _sum(int(days.group(1)), *days.groups()[1:])
        elif re.fullmatch("[0-9]+:[0-9]+", text):
            raise ValueError(f"{TIME_EXPECTED}; {text} is minutes and seconds to Slurm")
        else:
            raise ValueError(TIME_EXPECTED)
    return _whole(seconds / 60)


def duration(text: str) -> int:
    """Whole seconds of ``5s``, ``2m``, ``1h30m``, ``0``. Any other bare number is an error."""
    seconds = 0 if text == "0" else _seconds(text)
    if seconds is None or seconds != int(seconds):
        raise ValueError(DURATION_EXPECTED)
    return int(seconds)


def date(text: str) -> str:
    """The ISO date as given."""
    try:
        if not _DATE.fullmatch(text):
            raise ValueError
        datetime.date(int(text[:4]), int(text[5:7]), int(text[8:]))
    except ValueError:
        raise ValueError("a date such as 2026-12-31") from None
    return text


def name(text: str, what: str = "an account name") -> str:
    """A Slurm account, QOS or the like, in lower case as Slurm compares it."""
    if not _NAME.fullmatch(text) or not text.isprintable():
        raise ValueError(f"{what}: one word without spaces, commas, slashes or quotes")
    return text.lower()


def _seconds(text: str) -> Optional[Number]:
    if not _UNITS.fullmatch(text):
        return None
    parts = _PART.findall(text)
    units = [unit for _, unit in parts]
    if len(set(units)) < len(units) or sorted(units, key="dhms".index) != units:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _sum(days: int, hours: str, minutes: Optional[str], seconds: Optional[str]) -> int:
    return ((days * 24 + int(hours)) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)


def _whole(number: float) -> Number:
    return int(number) if number == int(number) else number
