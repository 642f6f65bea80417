"""Single values of a policy: amounts, durations, dates, names. All raise ValueError.

The message of the ValueError is what was expected; the caller says what was found.
"""

from __future__ import annotations

import datetime
import re
from typing import Optional, Union

Number = Union[int, float]

# The sources are JSON Schema's, too (policy_schema.py): nothing but plain ECMAScript.
COUNT = r"(?:0|[1-9][0-9]{0,14})"
_AMOUNT = r"(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,6})?"
MEM = _AMOUNT + "(?:[KMGTPkmgtp][Bb]?)?"
_PART = r"(?:(?:0|[1-9][0-9]{0,8})(?:\.[0-9]{1,3})?X)?"
UNITS = "(?=[0-9])" + "".join(_PART.replace("X", unit) for unit in "dhms")
CLOCK = "[0-9]{1,4}:[0-5][0-9]:[0-5][0-9]"
DAYS = "[0-9]{1,5}-(?:[01]?[0-9]|2[0-3])(?::[0-5][0-9]){0,2}"
UNLIMITED = "(?:[Uu][Nn][Ll][Ii][Mm][Ii][Tt][Ee][Dd]|[Ii][Nn][Ff][Ii][Nn][Ii][Tt][Ee])"
DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_FIRST = r"[^\s,/=\"'`;|&<>()\\\[\]{}*?$!%#:~^-]"
NAME = _FIRST + r"[^\s,/=\"'`;|&<>()\\\[\]{}*?$!]{0,254}"

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_MIB = {"": 1, "K": 2**-10, "M": 1, "G": 2**10, "T": 2**20, "P": 2**30}

COUNT_EXPECTED = "a whole number such as 4"
MEM_EXPECTED = "an amount of memory such as 250G (K, M, G, T; a bare number is MiB)"
TIME_EXPECTED = "a time such as 30m, 4h, 1h30m, 2d or 1-00:00:00 (a bare number is minutes)"
DURATION_EXPECTED = "a duration in seconds, minutes, hours or days such as 5s, 2m, 1h, or 0"


def count(text: str) -> int:
    """A whole number, without sign, leading zero, exponent or underscore."""
    if not re.fullmatch(COUNT, text):
        raise ValueError(COUNT_EXPECTED)
    return int(text)


def mem(text: str) -> Number:
    """MiB of ``250G``, ``250GB``, ``312.5G``, ``4000`` (MiB, as for sbatch's --mem)."""
    if not re.fullmatch(MEM, text):
        raise ValueError(MEM_EXPECTED)
    number = text.upper().rstrip("B").rstrip("KMGTP")
    return _whole(float(number) * _MIB[text[len(number) :][:1].upper()])


def time(text: str) -> Optional[Number]:
    """Minutes of ``30m``, ``1h30m``, ``1-00:00:00``, ``90`` (as for --time); None: unlimited.

    Slurm reads ``1:30`` as 90 seconds, YAML 1.1 as the number 90, and people as an hour and
    a half: it is refused.
    """
    if re.fullmatch(UNLIMITED, text):
        return None
    if re.fullmatch(COUNT, text):
        return int(text)
    seconds = _seconds(text)
    if seconds is None and re.fullmatch(f"{CLOCK}|{DAYS}", text):
        seconds = _clock(text)
    if seconds is None:
        trap = re.fullmatch("[0-9]+:[0-9]+", text)
        more = f" ({text} is minutes and seconds to Slurm)" if trap else ""
        raise ValueError(TIME_EXPECTED + more)
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
        if not re.fullmatch(DATE, text):
            raise ValueError
        datetime.date(int(text[:4]), int(text[5:7]), int(text[8:]))
    except ValueError:
        raise ValueError("a date such as 2026-12-31") from None
    return text


def name(text: str, what: str = "an account name") -> str:
    """A Slurm account, QOS or the like, in lower case as Slurm compares it."""
    if not re.fullmatch(NAME, text) or not text.isprintable():
        raise ValueError(f"{what}: one word without spaces, commas, slashes or quotes")
    return text.lower()


def _seconds(text: str) -> Optional[Number]:
    """Of ``1h30m``; None for another form."""
    if not re.fullmatch(UNITS, text):
        return None
    parts = re.findall(r"([0-9.]+)([dhms])", text)
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _clock(text: str) -> int:
    """Of ``H:M:S``, ``D-H``, ``D-H:M`` and ``D-H:M:S``."""
    days, _, rest = text.rpartition("-")
    fields = [int(field) for field in rest.split(":")]
    fields += [0] * (3 - len(fields))
    return int(days or 0) * 86400 + fields[0] * 3600 + fields[1] * 60 + fields[2]


def _whole(number: float) -> Number:
    return int(number) if number == int(number) else number
