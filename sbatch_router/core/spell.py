"""Amounts and times in words, spelt the same wherever people read them."""

from __future__ import annotations

from .tres import NO_TIME_LIMIT, UNKNOWN, endless


def exact_mem(mib: int) -> str:
    """MiB that can be compared or typed again: the largest unit that two decimals hold exactly.

    ``312.5G``, ``250000M``, ``1T``.
    """
    for suffix, unit in (("T", 2**20), ("G", 2**10)):
        if mib >= unit and (mib * 100) % unit == 0:
            return _decimals(mib * 100 // unit) + suffix
    return f"{mib}M"


def short_mem(mib: int) -> str:
    """MiB to be read beside others: ``244.14G``, ``5625G``, ``54.93T``, cut to two decimals.

    G up to 10 TiB, so that the amounts of one pool have one unit. Cut and not rounded: what
    is free must not look like more than it is.
    """
    if mib < 0:
        return "-" + short_mem(-mib)
    for suffix, unit in (("P", 2**30), ("T", 2**20)):
        if mib >= 10 * unit:
            return _decimals(mib * 100 // unit) + suffix
    if mib >= 2**10:
        return _decimals(mib * 100 // 2**10) + "G"
    return f"{mib}M" if mib else "0"


def _decimals(hundredths: int) -> str:
    return f"{hundredths // 100}.{hundredths % 100:02d}".rstrip("0").rstrip(".")


def amount(tres: str, value: object, kind: str = "") -> str:
    """One amount: ``244.14G``, ``4``, ``2h`` (of a wall-time limit), ``unlimited``, ``?``.

    `kind` is the limit's, such as ``MaxWallPJ``; `value` is MiB of ``mem`` (times minutes in the
    kinds with ``Mins``), minutes of a wall time, else a count; None is unlimited, and UNKNOWN what
    Slurm did not tell.
    """
    if value is None:
        return "unlimited"
    if value is UNKNOWN:
        return "?"
    if not isinstance(value, int):
        return str(value)
    if "Wall" in kind or kind == "MaxTime":
        return minutes(value)
    if endless(kind, value):
        return "unlimited"
    if tres == "mem" and "Mins" not in kind:
        return short_mem(value)
    return f"{value / 1e6:.1f}M" if value >= 10_000_000 else str(value)


def minutes(value: object) -> str:
    """``45m``, ``2h``, ``1d12h``; ``unlimited`` for None, ``?`` for what is not known."""
    if value is None or value == NO_TIME_LIMIT:
        return "unlimited"
    if not isinstance(value, int):
        return "?"
    return seconds(value * 60) if value else "0m"


def seconds(value: float) -> str:
    """``0s``, ``12s``, ``3m20s``, ``2h5m``, ``1d12h``: the two largest units."""
    left = max(0, round(value))
    parts = []
    for suffix, unit in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        number, left = divmod(left, unit)
        if number:
            parts.append(f"{number}{suffix}")
        elif parts:
            break
    return "".join(parts[:2]) or "0s"
