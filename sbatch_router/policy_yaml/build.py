"""Nodes to a checked `Policy`. Everything that is wrong is reported; nothing stops early.

Each function takes a node, its path and the report, and returns a usable value or None
when it reported an error.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

from ..core.policy import Account, Blocked, Policy, Rule
from . import conditions, fields, spec, values
from .fields import Each, T, get, mapping, one_or_more, scalar
from .findings import Report, nearest, one_of, quote
from .nodes import Broken, Items, Node, Pairs, Scalar, kind

#: The number of an entry in its list, from 1; its line; what it is.
Entry = Tuple[int, int, T]
Candidate = Tuple[str, Optional[str]]


def policy(root: Node, report: Report) -> Policy:
    """The policy of a document. With errors in the report it must not be used."""
    if not isinstance(root, Pairs):
        if not isinstance(root, Broken):
            message = "expected a mapping with version, accounts and rules"
            report.error(root.line, "policy", f"is {kind(root)}; {message}")
        return Policy(())
    fields.keys(root, "", spec.POLICY, report)
    pairs = root.pairs
    _version(root, report)
    accounts = _section(pairs, "accounts", account, report)
    blocks = _section(pairs, "blocked", blocked, report)
    _accounts_given(root, report)
    _unique([(i, n, a.name) for i, n, a in accounts], "accounts", "name", report)
    _unique([(i, n, b.account) for i, n, b in blocks], "blocked", "account", report)
    rules = _section(pairs, "rules", _rule_reader({a.name: a for _, _, a in accounts}), report)
    rules = [(i, n, rule._replace(name=rule.name or f"rule {i}")) for i, n, rule in rules]
    _unique([(i, n, rule.name) for i, n, rule in rules], "rules", "name", report)
    made = Policy(
        accounts=tuple(a for _, _, a in accounts),
        blocked=tuple(b for _, _, b in blocks),
        rules=tuple(rule for _, _, rule in rules),
        files=(report.file,),
    )
    return made._replace(**_settings(pairs, report))


def _accounts_given(root: Pairs, report: Report) -> None:
    """Reports a policy that has nothing to choose from, unless a misspelt key explains it."""
    pairs = root.pairs
    if "accounts" in pairs:
        key, node = pairs["accounts"]
        if isinstance(node, Items) and not node.items:
            report.error(key.line, "accounts", "is empty; expected an account")
    elif root.partial or any(nearest(name, ("accounts",)) for name in pairs):
        pass
    elif "rules" in pairs:
        message = "there are no accounts to choose from; add `accounts`"
        report.error(pairs["rules"][0].line, "rules", message)
    elif "blocked" not in pairs:
        report.error(root.line, "accounts", "is missing; expected a list of accounts")


def _settings(pairs: Dict[str, Tuple[Scalar, Node]], report: Report) -> Dict[str, Any]:
    """The policy's single settings that are given and good, by field."""
    readers: Dict[str, Tuple[str, Each[object]]] = {
        "when_full": ("when_full", fields.when_full),
        "own_backlog": ("own_backlog", fields.word(spec.POLICY, "own_backlog")),
        "explicit_account": ("explicit_account", explicit_account),
        "when_slurm_unreachable": (
            "when_slurm_unreachable",
            fields.word(spec.POLICY, "when_slurm_unreachable"),
        ),
        "source": ("source", fields.word(spec.POLICY, "source")),
        "cache": ("cache_seconds", fields.cache),
    }
    found: Dict[str, Any] = {}
    for key, (field, read) in readers.items():
        if key in pairs:
            value = read(pairs[key][1], key, report)
            if value is not None:
                found[field] = value
    return found


def _version(root: Pairs, report: Report) -> None:
    if "version" not in root.pairs:
        return
    node = root.pairs["version"][1]
    text = scalar(node, "version", f"{spec.VERSION}", report)
    if text is not None and text != spec.VERSION:
        newer = "; a newer sbatch-router may read it" if text.isdigit() and text != "0" else ""
        message = f"is {quote(text)}; expected {spec.VERSION}{newer}"
        report.error(node.line, "version", message)


def _section(
    pairs: Dict[str, Tuple[Scalar, Node]], name: str, read: Each[T], report: Report
) -> List[Entry[T]]:
    """The entries of a list of the policy."""
    if name not in pairs:
        return []
    node = pairs[name][1]
    if not isinstance(node, Items):
        if not isinstance(node, Broken):
            report.error(node.line, name, f"is {kind(node)}; expected a list")
        return []
    found = []
    for number, item in enumerate(node.items, 1):
        value = read(item, f"{name}[{number}]", report)
        if value is not None:
            found.append((number, item.line, value))
    return found


def _unique(entries: Sequence[Entry[str]], path: str, key: str, report: Report) -> None:
    first: Dict[str, int] = {}
    for number, line, name in entries:
        if name in first:
            message = f"{quote(name)} is given twice (first on line {first[name]}); keep one"
            report.error(line, f"{path}[{number}].{key}", message)
        first.setdefault(name, line)


def account(node: Node, path: str, report: Report) -> Optional[Account]:
    """One entry of `accounts`: a name, or a mapping."""
    if isinstance(node, Scalar):
        name = fields.name_of(node, path, "an account name", report)
        return None if name is None else Account(name)
    if not mapping(node, path, "an account name or a mapping with name", spec.ACCOUNT, report):
        return None
    assert isinstance(node, Pairs)
    name = get(node, "name", path, fields.named("an account name"), report)
    qos = get(node, "qos", path, _qos, report)
    only = get(node, "only", path, conditions.when, report)
    return None if name is None else Account(name, qos, only or {})


def blocked(node: Node, path: str, report: Report) -> Optional[Blocked]:
    """One entry of `blocked`."""
    if not mapping(node, path, "a mapping with account and reason", spec.BLOCKED, report):
        return None
    assert isinstance(node, Pairs)
    name = get(node, "account", path, fields.named("an account name"), report)
    reason = get(node, "reason", path, fields.reason, report)
    since = get(node, "since", path, fields.date, report)
    review = get(node, "review", path, fields.date, report)
    if name is None or reason is None:
        return None
    return Blocked(name, reason, since, review, report.file)


def _rule_reader(known: Dict[str, Account]) -> Each[Rule]:
    def rule(node: Node, path: str, report: Report) -> Optional[Rule]:
        if not mapping(node, path, "a mapping such as {order: [mem]}", spec.RULE, report):
            return None
        assert isinstance(node, Pairs)
        return Rule(
            name=get(node, "name", path, fields.label, report) or "",
            when=get(node, "when", path, conditions.when, report) or {},
            order=get(node, "order", path, _order, report) or (),
            candidates=get(node, "candidates", path, _candidates(known), report),
            when_full=get(node, "when_full", path, fields.when_full, report),
            own_backlog=get(
                node, "own_backlog", path, fields.word(spec.RULE, "own_backlog"), report
            ),
        )

    return rule


def explicit_account(node: Node, path: str, report: Report) -> Optional[Dict[str, str]]:
    """Origin to word; origins not given keep their default."""
    expected = "a mapping such as {cli: keep, env: prefer, script: prefer}"
    if not mapping(node, path, expected, spec.EXPLICIT_ACCOUNT, report):
        return None
    assert isinstance(node, Pairs)
    found = dict(Policy(()).explicit_account)
    for name in spec.names(spec.EXPLICIT_ACCOUNT):
        value = get(node, name, path, fields.word(spec.EXPLICIT_ACCOUNT, name), report)
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


def _qos(node: Node, path: str, report: Report) -> Optional[Tuple[str, ...]]:
    return one_or_more(node, path, fields.named("a QOS name"), report)


def _order(node: Node, path: str, report: Report) -> Optional[Tuple[str, ...]]:
    return one_or_more(node, path, fields.word(spec.RULE, "order"), report)
