"""Does a job meet a policy's conditions? Pure, and without `re` or `fnmatch` (hot path).

Facts are a mapping from matcher name to what is known of the job:

===============  ==============================================================
gpus cpus nodes  counts for the whole job (one array task)
mem              MiB for the whole job
time             minutes; None is unlimited, and larger than any number
array            tasks of the array; 1 for a job that is no array
attempt          Snakemake's attempt, from 1
gpu_type         tuple or set of GPU types asked for; empty: no type was named
partition        tuple or set of partitions the job may go to (``-p a,b``), or a str
job_name user    str
rule             tuple of Snakemake rule names: one, or all of a group job's
wildcards.NAME   str, one fact for each wildcard
===============  ==============================================================

A fact that is absent or `UNKNOWN` (an option we could not read, a job that is not
Snakemake's) meets no test on it, ``!=`` included: what is not known decides nothing.

Where a fact has several values (a group job's rules, ``-p a,b``), a test holds if any of
them meets it, and a ``!=`` test holds if none of them is the excluded one.

``partition`` and ``gpu_type`` are compared without regard to case; everything else exactly.
"""

from __future__ import annotations

from .tres import UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, Mapping, Tuple, Union

    from .policy import Test, When

    Facts = Mapping[str, object]
    Number = Union[int, float]

_INFINITE = float("inf")

#: Matchers that ignore case; their patterns are lower case in a checked policy.
FOLDED = frozenset(("partition", "gpu_type"))


def matches(when: When, facts: Facts) -> bool:
    """True if every test of `when` holds for `facts` (an empty `when` always does)."""
    for name, test in when.items():
        value = facts.get(name, UNKNOWN)
        if value is UNKNOWN or not holds(test, value, name in FOLDED):
            return False
    return True


def why_not(when: When, facts: Facts) -> str:
    """The first test of `when` that fails, in words; empty if all hold."""
    for name, test in when.items():
        value = facts.get(name, UNKNOWN)
        if value is UNKNOWN:
            return f"{name} is not known (wanted {test.text})"
        if not holds(test, value, name in FOLDED):
            return f"{name} is {_show(name, value)} (wanted {test.text})"
    return ""


def holds(test: Test, value: object, fold: bool = False) -> bool:
    """Whether one known fact meets one test. A value of the wrong type meets none."""
    if test.op == "list":
        return _holds_list(test, value, fold)
    if test.op in ("glob", "!glob"):
        texts = _texts(value, fold)
        if texts is None:
            return False
        return _any_glob(test.values, texts) == (test.op == "glob")
    number = _number(value)
    return number is not None and _compare(test.op, number, test.values)


def _holds_list(test: Test, value: object, fold: bool) -> bool:
    """Any item may hold; ``!=`` items take away, so each of them must hold."""
    wanted = found = False
    for item in test.values:
        assert isinstance(item, tuple)
        negative = item[0] in ("!=", "!glob")
        held = holds(item, value, fold)  # type: ignore[arg-type]
        if negative and not held:
            return False
        if not negative:
            wanted = True
            found = found or held
    return found or not wanted


def _number(value: object) -> Union[Number, None]:
    if value is None:
        return _INFINITE
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    return None


def _compare(op: str, number: Number, values: Tuple[object, ...]) -> bool:
    ends = [_number(value) for value in values]
    if op == "==":
        return number in ends
    if op == "!=":
        return number not in ends
    low, high = ends[0], ends[-1]
    if low is None or high is None:
        return False
    if op == "..":
        return low <= number <= high
    if op == "<":
        return number < low
    if op == "<=":
        return number <= low
    if op == ">":
        return number > low
    return op == ">=" and number >= low


def _texts(value: object, fold: bool) -> Union[Tuple[str, ...], None]:
    if isinstance(value, str):
        found: Tuple[str, ...] = (value,)
    elif isinstance(value, (tuple, list, set, frozenset)):
        found = tuple(item for item in value if isinstance(item, str))
    else:
        return None
    return tuple(text.lower() for text in found) if fold else found


def _any_glob(patterns: Iterable[object], texts: Tuple[str, ...]) -> bool:
    for pattern in patterns:
        for text in texts:
            if glob(str(pattern), text):
                return True
    return False


def glob(pattern: str, text: str) -> bool:
    """Whether the whole of `text` matches the shell pattern, case-sensitively.

    ``*`` any run of characters, ``?`` one, ``[abc]``, ``[a-z]``, ``[!a]`` one of (not of) a
    set, in which ``]`` comes first and ``-`` first or last to stand for itself. A ``[`` that
    is never closed is itself. As `fnmatch.fnmatchcase`; time is at most the product of the
    two lengths.
    """
    at, here = 0, 0
    star, resume = -1, 0
    while here < len(text):
        step = _one(pattern, at, text[here]) if at < len(pattern) else 0
        if step < 0:
            star, resume = at, here
            at += 1
        elif step:
            at += step
            here += 1
        elif star >= 0:
            resume += 1
            at, here = star + 1, resume
        else:
            return False
    return not pattern[at:].strip("*")


def _one(pattern: str, at: int, char: str) -> int:
    """Characters of the pattern used up by `char` at `at`; 0: no match; -1: a star."""
    sign = pattern[at]
    if sign == "*":
        return -1
    if sign == "?":
        return 1
    if sign == "[":
        end = _set_end(pattern, at)
        if end > 0:
            return end + 1 - at if _in_set(pattern[at + 1 : end], char) else 0
    return 1 if sign == char else 0


def _set_end(pattern: str, at: int) -> int:
    """Where the set that opens at `at` closes; -1 if it never does."""
    first = at + 1
    if pattern[first : first + 1] == "!":
        first += 1
    return pattern.find("]", first + 1)


def _in_set(body: str, char: str) -> bool:
    negative = body[0] == "!"
    at = 1 if negative else 0
    found = False
    while at < len(body):
        if body[at + 1 : at + 2] == "-" and at + 2 < len(body):
            found = found or body[at] <= char <= body[at + 2]
            at += 3
        else:
            found = found or body[at] == char
            at += 1
    return found != negative


def snakemake_facts(properties: Mapping[str, object]) -> Dict[str, object]:
    """The facts in Snakemake's job properties; empty for a job that is not Snakemake's.

    A group job has ``rules`` (or a list under ``rule``) instead of one ``rule``, and no
    wildcards: a test on ``wildcards.NAME`` never holds for it.
    """
    facts: Dict[str, object] = {}
    rules = _texts(properties.get("rule") or properties.get("rules"), False)
    if rules:
        facts["rule"] = rules
    wildcards = properties.get("wildcards")
    if isinstance(wildcards, dict):
        for name, value in wildcards.items():
            facts[f"wildcards.{name}"] = str(value)
    attempt = properties.get("attempt")
    if isinstance(attempt, int) and not isinstance(attempt, bool):
        facts["attempt"] = attempt
    return facts


def _show(name: str, value: object) -> str:
    if value is None:
        return "unlimited"
    if isinstance(value, (tuple, list, set, frozenset)):
        return ", ".join(sorted(map(str, value))) or "none"
    if isinstance(value, int):
        if name == "mem":
            from .spell import exact_mem

            return exact_mem(value)
        if name == "time":
            return f"{value} min"
    return str(value)
