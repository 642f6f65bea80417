"""Readers of single fields: each takes a node, its path and the report.

They return a usable value, or None when they reported an error (nothing, for a node that is
`Broken`: its error has been reported already).
"""

from __future__ import annotations

from typing import Callable, List, Optional, Tuple, TypeVar

from ..core.policy import WhenFull
from . import spec, values
from .findings import Report, nearest, one_of, quote
from .nodes import Broken, Items, Node, Pairs, Scalar, join, kind

T = TypeVar("T")
Each = Callable[[Node, str, Report], Optional[T]]
MAX_WAIT = 30 * 86400
MAX_CACHE = 3600


def keys(node: Pairs, path: str, known: Tuple[spec.Key, ...], report: Report) -> None:
    """Reports the keys of a mapping that are unknown, and required ones that are missing."""
    valid = spec.names(known)
    for name, (key, _) in node.pairs.items():
        if name not in valid:
            hint = nearest(name, valid) or f"; expected {one_of(valid)}"
            report.error(key.line, join(path, name), f"unknown key{hint}")
    for wanted in known:
        if wanted.required and wanted.name not in node.pairs and not node.partial:
            expected = _MISSING[wanted.name]
            report.error(node.line, join(path, wanted.name), f"is missing; expected {expected}")


_MISSING = {
    "version": f"`version: {spec.VERSION}`",
    "name": "an account",
    "account": "an account",
    "reason": "why the account is blocked",
}


def when_full(node: Node, path: str, report: Report) -> Optional[WhenFull]:
    """``refuse``, ``queue``, ``wait 10m`` or ``{wait: 10m}``."""
    expected = "refuse, queue or {wait: 10m}"
    if isinstance(node, Pairs):
        unknown = [key for name, (key, _) in node.pairs.items() if name != "wait"]
        for key in unknown:
            report.error(key.line, join(path, key.text), f"unknown key; expected {expected}")
        if "wait" not in node.pairs:
            if not unknown:
                report.error(node.line, path, f"is an empty mapping; expected {expected}")
            return None
        value = node.pairs["wait"][1]
        inside = join(path, "wait")
        text = scalar(value, inside, values.DURATION_EXPECTED, report)
        return None if text is None else _wait(text, value.line, inside, report)
    text = scalar(node, path, expected, report)
    if text is None:
        return None
    word, _, rest = text.partition(" ")
    if word == "wait" and rest.strip():
        return _wait(rest.strip(), node.line, path, report)
    if text in ("refuse", "queue"):
        return WhenFull(text)
    if word.rstrip(":") == "wait":
        report.error(node.line, path, f"is {quote(text)}; say for how long: {{wait: 10m}}")
        return None
    hint = nearest(text, ("refuse", "queue", "wait"))
    report.error(node.line, path, f"is {quote(text)}; expected {expected}{hint}")
    return None


def _wait(text: str, line: int, path: str, report: Report) -> Optional[WhenFull]:
    try:
        seconds = values.duration(text)
        if not 0 < seconds <= MAX_WAIT:
            raise ValueError("a time between 1s and 30d (or when_full: refuse)")
    except ValueError as error:
        report.error(line, path, f"is {quote(text)}; expected {error}")
        return None
    return WhenFull("wait", seconds)


def one_or_more(node: Node, path: str, read: Each[T], report: Report) -> Optional[Tuple[T, ...]]:
    """One value or a list without repetitions; None after an error in any."""
    if isinstance(node, Broken):
        return None
    if not isinstance(node, Items):
        value = read(node, path, report)
        return None if value is None else (value,)
    if not node.items:
        report.error(node.line, path, "is an empty list; leave the key out or name one")
        return None
    found: List[T] = []
    for number, item in enumerate(node.items, 1):
        inside = f"{path}[{number}]"
        value = read(item, inside, report)
        if value is not None and value in found:
            assert isinstance(item, Scalar)
            report.error(item.line, inside, f"{quote(item.text)} is given twice; keep one")
        elif value is not None:
            found.append(value)
    return tuple(found) if len(found) == len(node.items) else None


def scalar(node: Node, path: str, expected: str, report: Report) -> Optional[str]:
    """The text of a value that is not empty."""
    if isinstance(node, Scalar) and not node.null and node.text.strip():
        return node.text
    if not isinstance(node, Broken):
        report.error(node.line, path, f"is {kind(node)}; expected {expected}")
    return None


def mapping(
    node: Node, path: str, expected: str, known: Tuple[spec.Key, ...], report: Report
) -> bool:
    if isinstance(node, Pairs):
        keys(node, path, known, report)
        return True
    if not isinstance(node, Broken):
        report.error(node.line, path, f"is {kind(node)}; expected {expected}")
    return False


def get(node: Pairs, name: str, path: str, read: Each[T], report: Report) -> Optional[T]:
    if name not in node.pairs:
        return None
    return read(node.pairs[name][1], join(path, name), report)


def name_of(node: Node, path: str, what: str, report: Report) -> Optional[str]:
    text = scalar(node, path, what, report)
    return None if text is None else checked(_namer(what), text, node.line, path, report)


def _namer(what: str) -> Callable[[str], str]:
    return lambda text: values.name(text, what)


def checked(
    read: Callable[[str], T], text: str, line: int, path: str, report: Report
) -> Optional[T]:
    try:
        return read(text)
    except ValueError as error:
        report.error(line, path, f"is {quote(text)}; expected {error}")
        return None


def named(what: str) -> Each[str]:
    return lambda node, path, report: name_of(node, path, what, report)


def reason(node: Node, path: str, report: Report) -> Optional[str]:
    text = scalar(node, path, "why the account is blocked", report)
    return None if text is None else " ".join(text.split())


def label(node: Node, path: str, report: Report) -> Optional[str]:
    text = scalar(node, path, "a name", report)
    if text is not None and (len(text) > 100 or not text.isprintable()):
        report.error(
            node.line, path, f"is {quote(text)}; expected at most 100 characters, one line"
        )
        return None
    return text


def date(node: Node, path: str, report: Report) -> Optional[str]:
    text = scalar(node, path, "a date such as 2026-12-31", report)
    return None if text is None else checked(values.date, text, node.line, path, report)


def cache(node: Node, path: str, report: Report) -> Optional[int]:
    text = scalar(node, path, values.DURATION_EXPECTED, report)
    seconds = None if text is None else checked(values.duration, text, node.line, path, report)
    if seconds is not None and seconds > MAX_CACHE:
        report.error(node.line, path, f"is {quote(str(text))}; expected at most 1h")
        return None
    return seconds


def word(known: Tuple[spec.Key, ...], name: str) -> Each[str]:
    valid = spec.words(known, name)

    def read(node: Node, path: str, report: Report) -> Optional[str]:
        text = scalar(node, path, one_of(valid), report)
        if text is None or text in valid:
            return text
        hint = nearest(text, valid)
        report.error(node.line, path, f"is {quote(text)}; expected {one_of(valid)}{hint}")
        return None

    return read
