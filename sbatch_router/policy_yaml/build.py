"""Nodes to a checked `Policy`. Everything that is wrong is reported; nothing stops early.

Each function takes a node, its path and the report, and returns a usable value or None
when it reported an error. `Lines` keeps where things were said, for advice.py.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

from ..core.policy import Account, Blocked, Policy, Rule, WhenFull
from . import conditions, spec, values
from .findings import Report, nearest, one_of, quote
from .nodes import Broken, Items, Node, Pairs, Scalar, join

T = TypeVar("T")
Each = Callable[[Node, str, Report], Optional[T]]
Candidate = Tuple[str, Optional[str]]
MAX_WAIT = 30 * 86400
MAX_CACHE = 3600


class Lines(NamedTuple):
    """The line of each account, block and rule of the policy, in their order."""

    accounts: Tuple[int, ...]
    blocked: Tuple[int, ...]
    rules: Tuple[int, ...]


def policy(root: Node, report: Report) -> Tuple[Policy, Lines]:
    """The policy of a document. With errors in the report it must not be used."""
    if not isinstance(root, Pairs):
        if not isinstance(root, Broken):
            message = "expected a mapping with version, accounts and rules"
            report.error(root.line, "policy", f"is {_kind(root)}; {message}")
        return Policy(()), Lines((), (), ())
    keys(root, "", spec.POLICY, report)
    pairs = root.pairs
    _version(root, report)
    accounts = _section(pairs, "accounts", account, report)
    blocks = _section(pairs, "blocked", blocked, report)
    if "accounts" not in pairs and "blocked" not in pairs:
        report.error(root.line, "accounts", "is missing; expected a list of accounts")
    if "accounts" in pairs and pairs["accounts"][1] == Items(pairs["accounts"][1].line, ()):
        report.error(pairs["accounts"][0].line, "accounts", "is empty; expected an account")
    _unique([(n, a.name) for n, a in accounts], "accounts", "name", report)
    _unique([(n, b.account) for n, b in blocks], "blocked", "account", report)
    known = {a.name: a for _, a in accounts}
    if "rules" in pairs and "accounts" not in pairs:
        message = "there are no accounts to choose from; add `accounts`"
        report.error(pairs["rules"][0].line, "rules", message)
    rules = _section(pairs, "rules", _rule_reader(known), report)
    numbered = [(n, rule._replace(name=rule.name or f"rule {i}")) for i, n, rule in _count(rules)]
    _unique([(n, rule.name) for n, rule in numbered], "rules", "name", report)
    made = Policy(
        accounts=tuple(a for _, a in accounts),
        blocked=tuple(b for _, b in blocks),
        rules=tuple(rule for _, rule in numbered),
        files=(report.file,),
    )
    lines = Lines(_firsts(accounts), _firsts(blocks), _firsts(rules))
    return made._replace(**_settings(pairs, report)), lines


def _settings(pairs: Dict[str, Tuple[Scalar, Node]], report: Report) -> Dict[str, Any]:
    """The policy's single settings that are given and good, by field."""
    readers: Dict[str, Tuple[str, Each[object]]] = {
        "when_full": ("when_full", when_full),
        "own_backlog": ("own_backlog", _word(spec.POLICY, "own_backlog")),
        "explicit_account": ("explicit_account", explicit_account),
        "when_slurm_unreachable": (
            "when_slurm_unreachable",
            _word(spec.POLICY, "when_slurm_unreachable"),
        ),
        "source": ("source", _word(spec.POLICY, "source")),
        "cache": ("cache_seconds", _cache),
    }
    found: Dict[str, Any] = {}
    for key, (field, read) in readers.items():
        if key in pairs:
            value = read(pairs[key][1], key, report)
            if value is not None:
                found[field] = value
    return found


def keys(node: Pairs, path: str, known: Tuple[spec.Key, ...], report: Report) -> None:
    """Reports the keys of a mapping that are unknown, and required ones that are missing.

    The policy's own missing keys are left to `policy`.
    """
    valid = spec.names(known)
    for name, (key, _) in node.pairs.items():
        if name not in valid:
            hint = nearest(name, valid) or f"; expected {one_of(valid)}"
            report.error(key.line, join(path, name), f"unknown key{hint}")
    for wanted in known:
        if path and wanted.required and wanted.name not in node.pairs:
            report.error(node.line, join(path, wanted.name), f"is missing; {_about(wanted)}")


def _about(key: spec.Key) -> str:
    return {"reason": "expected why the account is blocked"}.get(key.name, "expected an account")


def _version(root: Pairs, report: Report) -> None:
    if "version" not in root.pairs:
        report.error(root.line, "version", f"is missing; expected `version: {spec.VERSION}`")
        return
    node = root.pairs["version"][1]
    text = scalar(node, "version", f"{spec.VERSION}", report)
    if text is not None and text != spec.VERSION:
        newer = "; a newer sbatch-router may read it" if text.isdigit() and text != "0" else ""
        message = f"is {quote(text)}; expected {spec.VERSION}{newer}"
        report.error(node.line, "version", message)


def _section(
    pairs: Dict[str, Tuple[Scalar, Node]], name: str, read: Each[T], report: Report
) -> List[Tuple[int, T]]:
    """The entries of a list of the policy, each with its line."""
    if name not in pairs:
        return []
    node = pairs[name][1]
    if not isinstance(node, Items):
        if not isinstance(node, Broken):
            report.error(node.line, name, f"is {_kind(node)}; expected a list")
        return []
    found = []
    for number, item in enumerate(node.items, 1):
        value = read(item, f"{name}[{number}]", report)
        if value is not None:
            found.append((item.line, value))
    return found


def _unique(entries: Sequence[Tuple[int, str]], path: str, key: str, report: Report) -> None:
    first: Dict[str, int] = {}
    for line, name in entries:
        if name in first:
            message = f"{quote(name)} is given twice (first on line {first[name]}); keep one"
            report.error(line, f"{path}.{key}", message)
        first.setdefault(name, line)


def account(node: Node, path: str, report: Report) -> Optional[Account]:
    """One entry of `accounts`: a name, or a mapping."""
    if isinstance(node, Scalar):
        name = _name(node, path, "an account name", report)
        return None if name is None else Account(name)
    if not _mapping(node, path, "an account name or a mapping with name", spec.ACCOUNT, report):
        return None
    assert isinstance(node, Pairs)
    name = _get(node, "name", path, _named("an account name"), report)
    qos = _get(node, "qos", path, _qos, report)
    only = _get(node, "only", path, conditions.when, report)
    return None if name is None else Account(name, qos, only or {})


def blocked(node: Node, path: str, report: Report) -> Optional[Blocked]:
    """One entry of `blocked`."""
    if not _mapping(node, path, "a mapping with account and reason", spec.BLOCKED, report):
        return None
    assert isinstance(node, Pairs)
    name = _get(node, "account", path, _named("an account name"), report)
    reason = _get(node, "reason", path, _reason, report)
    since = _get(node, "since", path, _date, report)
    review = _get(node, "review", path, _date, report)
    if name is None or reason is None:
        return None
    return Blocked(name, reason, since, review, report.file)


def _rule_reader(known: Dict[str, Account]) -> Each[Rule]:
    def rule(node: Node, path: str, report: Report) -> Optional[Rule]:
        if not _mapping(node, path, "a mapping such as {order: [mem]}", spec.RULE, report):
            return None
        assert isinstance(node, Pairs)
        return Rule(
            name=_get(node, "name", path, _label, report) or "",
            when=_get(node, "when", path, conditions.when, report) or {},
            order=_get(node, "order", path, _order, report) or (),
            candidates=_get(node, "candidates", path, _candidates(known), report),
            when_full=_get(node, "when_full", path, when_full, report),
            own_backlog=_get(node, "own_backlog", path, _word(spec.RULE, "own_backlog"), report),
        )

    return rule


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


def explicit_account(node: Node, path: str, report: Report) -> Optional[Dict[str, str]]:
    """Origin to word; origins not given keep their default."""
    expected = "a mapping such as {cli: keep, env: prefer, script: prefer}"
    if not _mapping(node, path, expected, spec.EXPLICIT_ACCOUNT, report):
        return None
    assert isinstance(node, Pairs)
    found = dict(Policy(()).explicit_account)
    for name in spec.names(spec.EXPLICIT_ACCOUNT):
        value = _get(node, name, path, _word(spec.EXPLICIT_ACCOUNT, name), report)
        if value is not None:
            found[name] = value
    return found


def _candidates(known: Dict[str, Account]) -> Each[Tuple[Candidate, ...]]:
    def one(node: Node, path: str, report: Report) -> Optional[Candidate]:
        text = scalar(node, path, "account or account/qos", report)
        if text is None:
            return None
        name, slash, qos = text.partition("/")
        try:
            pair = (values.name(name), values.name(qos, "a QOS name") if slash else None)
        except ValueError as error:
            message = f"is {quote(text)}; expected account or account/qos ({error})"
            report.error(node.line, path, message)
            return None
        if known and pair[0] not in known:
            hint = nearest(name, list(known)) or f"; expected {one_of(list(known))}"
            report.error(node.line, path, f"{quote(name)} is not in accounts{hint}")
            return None
        listed = known[pair[0]].qos if known else None
        if pair[1] and listed is not None and pair[1] not in listed:
            hint = nearest(pair[1], listed) or f"; expected {one_of(listed)}"
            report.error(node.line, path, f"{quote(qos)} is not in the qos of {pair[0]}{hint}")
            return None
        return pair

    def read(node: Node, path: str, report: Report) -> Optional[Tuple[Candidate, ...]]:
        return one_or_more(node, path, one, report)

    return read


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
        report.error(node.line, path, f"is {_kind(node)}; expected {expected}")
    return None


def _kind(node: Node) -> str:
    if isinstance(node, Items):
        return "a list"
    if isinstance(node, Pairs):
        return "a mapping"
    if isinstance(node, Scalar) and (node.null or not node.text.strip()):
        return f"empty ({node.text})" if node.text.strip() else "empty"
    return quote(node.text) if isinstance(node, Scalar) else "broken"


def _mapping(
    node: Node, path: str, expected: str, known: Tuple[spec.Key, ...], report: Report
) -> bool:
    if isinstance(node, Pairs):
        keys(node, path, known, report)
        return True
    if not isinstance(node, Broken):
        report.error(node.line, path, f"is {_kind(node)}; expected {expected}")
    return False


def _get(node: Pairs, name: str, path: str, read: Each[T], report: Report) -> Optional[T]:
    if name not in node.pairs:
        return None
    return read(node.pairs[name][1], join(path, name), report)


def _name(node: Node, path: str, what: str, report: Report) -> Optional[str]:
    text = scalar(node, path, what, report)
    return None if text is None else _checked(_namer(what), text, node.line, path, report)


def _namer(what: str) -> Callable[[str], str]:
    return lambda text: values.name(text, what)


def _checked(
    read: Callable[[str], T], text: str, line: int, path: str, report: Report
) -> Optional[T]:
    try:
        return read(text)
    except ValueError as error:
        report.error(line, path, f"is {quote(text)}; expected {error}")
        return None


def _named(what: str) -> Each[str]:
    return lambda node, path, report: _name(node, path, what, report)


def _qos(node: Node, path: str, report: Report) -> Optional[Tuple[str, ...]]:
    return one_or_more(node, path, _named("a QOS name"), report)


def _reason(node: Node, path: str, report: Report) -> Optional[str]:
    text = scalar(node, path, "why the account is blocked", report)
    return None if text is None else " ".join(text.split())


def _label(node: Node, path: str, report: Report) -> Optional[str]:
    text = scalar(node, path, "a name", report)
    if text is not None and (len(text) > 100 or not text.isprintable()):
        report.error(
            node.line, path, f"is {quote(text)}; expected at most 100 characters, one line"
        )
        return None
    return text


def _date(node: Node, path: str, report: Report) -> Optional[str]:
    text = scalar(node, path, "a date such as 2026-12-31", report)
    return None if text is None else _checked(values.date, text, node.line, path, report)


def _cache(node: Node, path: str, report: Report) -> Optional[int]:
    text = scalar(node, path, values.DURATION_EXPECTED, report)
    seconds = None if text is None else _checked(values.duration, text, node.line, path, report)
    if seconds is not None and seconds > MAX_CACHE:
        report.error(node.line, path, f"is {quote(str(text))}; expected at most 1h")
        return None
    return seconds


def _order(node: Node, path: str, report: Report) -> Optional[Tuple[str, ...]]:
    return one_or_more(node, path, _word(spec.RULE, "order"), report)


def _word(known: Tuple[spec.Key, ...], name: str) -> Each[str]:
    valid = spec.words(known, name)

    def read(node: Node, path: str, report: Report) -> Optional[str]:
        text = scalar(node, path, one_of(valid), report)
        if text is None or text in valid:
            return text
        hint = nearest(text, valid)
        report.error(node.line, path, f"is {quote(text)}; expected {one_of(valid)}{hint}")
        return None

    return read


def _count(entries: List[Tuple[int, Rule]]) -> List[Tuple[int, int, Rule]]:
    return [(i, line, rule) for i, (line, rule) in enumerate(entries, 1)]


def _firsts(entries: Sequence[Tuple[int, object]]) -> Tuple[int, ...]:
    return tuple(line for line, _ in entries)
