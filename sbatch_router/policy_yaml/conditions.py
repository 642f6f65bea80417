"""The conditions of `when` and `only`: text to `Test`.

======================  ==========================================================
``4``  ``==4``          numbers: exactly this
``">0"`` ``"<=4h"``     larger, at most...; ``!=`` anything but
``2..8``                from 2 to 8, both included
``qc_*``                text: a shell pattern; ``!=qc_*`` anything but
``[a, "b*"]``           any of these; items with ``!=`` take away
======================  ==========================================================
"""

from __future__ import annotations

import re
from typing import Callable, Dict, List, Optional, Tuple

from ..core.policy import Test
from . import spec, values
from .findings import Report, nearest, one_of
from .nodes import Broken, Items, Node, Pairs, Scalar, join, kind

_OPERATOR = re.compile(r"(==|!=|<=|>=|<|>)?\s*(.*)", re.DOTALL)

_READ: Dict[str, Callable[[str], object]] = {
    "count": values.count,
    "mem": values.mem,
    "time": values.time,
}


def when(node: Node, path: str, report: Report) -> Dict[str, Test]:
    """A mapping of matcher to condition. Reports errors and leaves those matchers out."""
    found: Dict[str, Test] = {}
    if isinstance(node, Broken):
        return found
    if not isinstance(node, Pairs):
        report.error(node.line, path, f'is {kind(node)}; expected a mapping such as {{gpus: ">0"}}')
        return found
    for key, value in node.pairs.values():
        inside = join(path, key.text)
        matcher = _matcher(key, inside, report)
        if matcher is None:
            continue
        test = _test(value, matcher, inside, report)
        if test is not None:
            found[key.text] = test
    return found


def _matcher(key: Scalar, path: str, report: Report) -> Optional[spec.Matcher]:
    name = key.text
    if name in spec.BY_NAME:
        return spec.BY_NAME[name]
    if name.startswith("wildcards."):
        if re.fullmatch(spec.WILDCARD_KEY, name):
            return spec.WILDCARD
        report.error(key.line, path, "no wildcard has such a name; expected wildcards.NAME")
        return None
    if name == "wildcards":
        report.error(key.line, path, "name one wildcard: `wildcards.sample: ...`")
        return None
    valid = [*spec.BY_NAME, spec.WILDCARD.name]
    hint = nearest(name, valid) or f"; expected {one_of(valid)}"
    report.error(key.line, path, f"unknown matcher{hint}")
    return None


def _test(node: Node, matcher: spec.Matcher, path: str, report: Report) -> Optional[Test]:
    if isinstance(node, Broken):
        return None
    if isinstance(node, Pairs):
        message = f"is a mapping; expected {_expected(matcher)}, or a list"
        report.error(node.line, path, message)
        return None
    if isinstance(node, Items):
        return _list(node, matcher, path, report)
    return _one(node, matcher, path, report)


def _list(node: Items, matcher: spec.Matcher, path: str, report: Report) -> Optional[Test]:
    if not node.items:
        report.error(node.line, path, f"is an empty list; expected {_expected(matcher)}")
        return None
    tests: List[Test] = []
    for number, item in enumerate(node.items, 1):
        inside = f"{path}[{number}]"
        if isinstance(item, Scalar):
            test = _one(item, matcher, inside, report)
            if test is not None:
                tests.append(test)
        elif not isinstance(item, Broken):
            report.error(item.line, inside, f"is {kind(item)}; expected {_expected(matcher)}")
    return joined(tests) if len(tests) == len(node.items) else None


def joined(tests: List[Test]) -> Test:
    """One Test for a list of them."""
    if len(tests) == 1:
        return tests[0]
    text = "[" + ", ".join(test.text for test in tests) + "]"
    ops = {test.op for test in tests}
    if len(ops) == 1 and ops <= {"==", "!=", "glob", "!glob"}:
        return Test(tests[0].op, tuple(test.values[0] for test in tests), text)
    return Test("list", tuple(tests), text)


def _one(node: Scalar, matcher: spec.Matcher, path: str, report: Report) -> Optional[Test]:
    try:
        if node.block or node.null:
            raise ValueError(_expected(matcher))
        return parse(node.text, matcher)
    except ValueError as error:
        found = "a block (| or >, not in quotes)" if node.block else kind(node)
        report.error(node.line, path, f"is {found}; expected {error}")
        return None


def parse(text: str, matcher: spec.Matcher) -> Test:
    """One condition. The ValueError says what was expected."""
    match = _OPERATOR.fullmatch(text.strip())
    assert match is not None
    op, rest = match.group(1) or "", match.group(2).strip()
    if matcher.kind in ("text", "folded"):
        return _pattern(op, rest, text.strip(), matcher)
    read = _READ[matcher.kind]
    if ".." in rest:
        return _range(op, rest, text.strip(), matcher)
    try:
        value = read(rest)
    except ValueError as error:
        raise ValueError(f"{error}{_example(matcher)}") from None
    if value is None and op not in ("", "==", "!="):
        raise ValueError("a number to compare with: no time is more than unlimited")
    return Test(op or "==", (value,), text.strip())


def _pattern(op: str, rest: str, text: str, matcher: spec.Matcher) -> Test:
    if op not in ("", "==", "!=") or not rest:
        raise ValueError(f"text: {_expected(matcher)}" if op else _expected(matcher))
    folded = rest.lower() if matcher.kind == "folded" else rest
    return Test("!glob" if op == "!=" else "glob", (folded,), text)


def _range(op: str, rest: str, text: str, matcher: spec.Matcher) -> Test:
    read = _READ[matcher.kind]
    low_text, _, high_text = rest.partition("..")
    if op:
        raise ValueError(f"either a range or {op}, not both")
    low, high = read(low_text.strip()), read(high_text.strip())
    if not isinstance(low, (int, float)) or not isinstance(high, (int, float)):
        raise ValueError("two numbers around `..`")
    if low > high:
        raise ValueError(f"the smaller end of a range first: {high_text}..{low_text}")
    return Test("..", (low, high), text)


_EXPECTED: Dict[str, Tuple[str, str]] = {
    "count": (values.COUNT_EXPECTED, ', or a test such as ">0" or 2..8'),
    "mem": (values.MEM_EXPECTED, ', or a test such as ">64G" or 1G..16G'),
    "time": (values.TIME_EXPECTED, ', or a test such as "<=4h" or 1h..1d'),
    "text": ("a name or a pattern", ' such as "qc_*" or "!=qc_*"'),
    "folded": ("a name or a pattern", ' such as "gpu*" or "!=gpu-test"'),
}


def _example(matcher: spec.Matcher) -> str:
    return _EXPECTED[matcher.kind][1]


def _expected(matcher: spec.Matcher) -> str:
    return "".join(_EXPECTED[matcher.kind])
