"""What is wrong with a policy, and where."""

from __future__ import annotations

import difflib
from typing import Dict, Iterable, List, NamedTuple, Sequence


class Finding(NamedTuple):
    """One error or warning. `line` counts from 1; `key` is a path such as ``rules[2].when``."""

    file: str
    line: int
    key: str
    message: str
    warning: bool = False

    def __str__(self) -> str:
        mark = "warning: " if self.warning else ""
        return f"{self.file}:{self.line}: {mark}{self.key}: {self.message}"


class PolicyErrors(Exception):
    """A policy that cannot be used. `errors` has every error found, in line order."""

    def __init__(self, errors: Iterable[Finding]) -> None:
        self.errors = tuple(sorted(errors, key=lambda f: f.line))
        super().__init__("\n".join(map(str, self.errors)))


class Report:
    """Collects findings about one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.errors: List[Finding] = []
        self.warnings: List[Finding] = []
        #: The line of each path in the file.
        self.at: Dict[str, int] = {}

    def error(self, line: int, key: str, message: str) -> None:
        self.errors.append(Finding(self.file, line, key, message))

    def warn(self, key: str, message: str) -> None:
        self.warnings.append(Finding(self.file, self.line(key), key, message, True))

    def line(self, key: str) -> int:
        """Where a path is, or the nearest one above it that is there."""
        while key and key not in self.at:
            key = key[: max(key.rfind("."), key.rfind("["), 0)]
        return self.at.get(key, 1)


def quote(text: str) -> str:
    """`text` for a message: in backquotes, on one line, not too long."""
    shown = text if len(text) <= 60 else text[:57] + "..."
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
    return f"`{shown}`"


def nearest(name: str, valid: Sequence[str]) -> str:
    """``; did you mean `when_full`?``, or nothing if no valid name is near."""
    folded = {v.lower(): v for v in reversed(valid)}
    short = name[:60].lower()
    close = difflib.get_close_matches(short, list(folded), 1, 0.6)
    if not close and len(short) > 2:
        close = [v for v in folded if v.startswith(short) or (len(v) > 2 and short.startswith(v))]
    return f"; did you mean `{folded[close[0]]}`?" if close else ""


def one_of(valid: Sequence[str]) -> str:
    """``a, b or c``."""
    return " or ".join([", ".join(valid[:-1]), valid[-1]]) if len(valid) > 1 else valid[0]
