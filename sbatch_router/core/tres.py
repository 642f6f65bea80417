"""Trackable resources (TRES) as Slurm prints them, and limits on them.

A TRES amount is an integer: a count, or MiB for ``mem``. Three things are never confused:

* unlimited: `None` (Slurm prints ``N`` or nothing);
* zero: ``0``, a limit like any other;
* unknown: `UNKNOWN`; Slurm did not tell, or not in a form we know.
"""

from __future__ import annotations

from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Mapping, Union

    #: TRES name (``cpu``, ``mem``, ``node``, ``gres/gpu:a100``, ``billing``) to amount.
    Tres = Dict[str, int]


class Unknown:
    """The type of `UNKNOWN`. It compares equal to nothing but itself and has no truth value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        raise TypeError("UNKNOWN is neither true nor false: ask `is UNKNOWN`")

    def __reduce__(self) -> str:
        return "UNKNOWN"


UNKNOWN = Unknown()

if TYPE_CHECKING:
    #: An amount, `None` for unlimited, or `UNKNOWN`.
    Amount = Union[int, None, Unknown]


class Limit(Record):
    """One limit and what is used of it, as in ``320000(256000)``.

    `used` counts running allocations of every user the limit covers. It is `None` where the
    limit has no use (a limit on one job).
    """

    limit: Amount
    used: Amount = None


if TYPE_CHECKING:
    LimitMap = Dict[str, Limit]

NO_LIMIT = Limit(None, None)

#: slurm.h: no time limit was given (NO_VAL), and the limit "unlimited" (INFINITE). slurmctld
#: multiplies by both as if they were minutes.
NOT_SET = 0xFFFFFFFE
NO_TIME_LIMIT = 0xFFFFFFFF


def endless(kind: str, value: int) -> bool:
    """Whether an amount of a limit on time is that of a job without a time limit."""
    timed = kind == "MaxTime" or "Wall" in kind or "Mins" in kind
    return timed and value >= NO_TIME_LIMIT


_MEM_SUFFIX = {"K": 2**-10, "M": 1, "G": 2**10, "T": 2**20, "P": 2**30, "E": 2**40}


def parse_mem(text: str) -> int:
    """MiB of a memory amount as Slurm *prints* it: ``320000``, ``312.50G``, ``4000000M``.

    A bare number is MiB. Fractions round up, as a limit that is printed rounded must not
    look smaller than what was asked of it. Raises ValueError for anything else.
    """
    factor: float = _MEM_SUFFIX.get(text[-1:].upper(), 0)
    number = text[:-1] if factor else text
    factor = factor or 1
    value = float(number) * factor if "." in number or factor < 1 else int(number) * int(factor)
    if value < 0 or value != value or value == float("inf"):
        raise ValueError(f"not a memory amount: {text!r}")
    return int(value) if value == int(value) else int(value) + 1


def parse_tres(text: str) -> Tres:
    """``cpu=4,mem=250G,node=1,gres/gpu:a100=1`` as a dict; empty for ``""`` and ``(null)``.

    Raises ValueError, naming the part, when a part is not NAME=AMOUNT.
    """
    found: Tres = {}
    if text in ("", "(null)", "N/A"):
        return found
    for part in text.split(","):
        name, equals, amount = part.partition("=")
        name = name.strip()
        try:
            if not name or not equals:
                raise ValueError
            found[name] = parse_mem(amount) if name == "mem" else _count(amount)
        except ValueError:
            raise ValueError(f"not a TRES amount: {part!r} in {text!r}") from None
    return found


def _count(text: str) -> int:
    """A count as Slurm prints it: digits, sometimes with a K/M/G suffix (energy, billing)."""
    if text.isdigit():
        return int(text)
    if "." in text and text.replace(".", "", 1).isdigit():
        return int(float(text))
    return parse_mem(text[:-1] + "M") * int(_MEM_SUFFIX[text[-1].upper()] * 2**10)


def format_tres(tres: Mapping[str, int]) -> str:
    """The inverse of `parse_tres`: ``mem`` in MiB with an ``M``, order kept."""
    return ",".join(f"{n}={v}M" if n == "mem" else f"{n}={v}" for n, v in tres.items())


def parse_limit(text: str) -> Limit:
    """``80(4)``, ``N(12)``, ``4(N)``, ``1440``, ``""``: a limit with or without its use.

    ``N`` before the bracket is unlimited; ``N`` inside it is unknown use. An empty text is
    no limit. Fractions (GrpWall's use) are cut. Anything else makes that half `UNKNOWN`.
    """
    if not text:
        return NO_LIMIT
    limit_text, bracket, used_text = text.partition("(")
    limit: Amount = None if limit_text in ("N", "NONE", "UNLIMITED", "") else _number(limit_text)
    if not bracket:
        return Limit(limit, None)
    return Limit(limit, _number(used_text[:-1]) if used_text[-1:] == ")" else UNKNOWN)


def _number(text: str) -> Union[int, Unknown]:
    if text.isdigit():
        return int(text)
    try:
        return int(float(text))
    except (ValueError, OverflowError):
        return UNKNOWN


def parse_limits(text: str) -> LimitMap:
    """``cpu=80(4),mem=N(256000)`` or ``cpu=32`` (no use) as TRES name to `Limit`."""
    found: LimitMap = {}
    if text and text != "(null)":
        for part in text.split(","):
            name, _, value = part.partition("=")
            if value[-1:].isalpha() and value != "N" and name == "mem":
                value = str(parse_mem(value))
            found[name.strip()] = parse_limit(value) if value else Limit(UNKNOWN, UNKNOWN)
    return found
