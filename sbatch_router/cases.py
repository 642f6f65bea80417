"""Cases of a policy: sbatch calls on imagined clusters, and what must come of them.

``NAME.cases.yaml`` beside ``NAME.yaml`` (docs/policy.md):

    pools:                            # an account, or account/qos where the QOS is not its own
      maigan: {limits: "cpu=80,mem=625G,gres/gpu=4"}
      clive: {limits: "cpu=40,mem=312.5G", used_by_others: "cpu=32,mem=256G"}
    cases:
      - name: the neighbour fills clive
        sbatch: --mem=125G job.sh
        pools: {maigan: {used_by_me: "mem=100G"}}       # on top of the pools above
        expect: {action: route, account: maigan, verdicts: {clive: waits_others}}
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
    TypeVar,
)

from .cases_snapshot import Pool, silent, snapshot
from .core.decide import Decision, decide
from .core.policy import Policy
from .core.tres import parse_tres
from .policy_yaml import build, fields
from .policy_yaml.findings import Finding, PolicyErrors, Report, nearest, one_of, quote
from .policy_yaml.nodes import Items, Node, Pairs, Scalar, Unreadable, decode, join, kind, parse
from .policyfile import load, merge, read
from .slurm.request import read_request

if TYPE_CHECKING:
    from .core.tres import Tres

T = TypeVar("T")
Fields = Dict[str, Node]

FILE_KEYS = ("user", "partitions", "pools", "cases")
CASE_KEYS = ("name", "sbatch", "script", "env", "user", "pools", "silent", "user_policy", "expect")
POOL_KEYS = (
    "limits", "used_by_others", "used_by_me", "pending_mine", "max_per_job", "max_per_user",
    "flags", "unknown",
)  # fmt: skip
EXPECT_KEYS = ("action", "account", "qos", "rule", "exit", "wait", "why", "note", "verdicts",
               "reasons")  # fmt: skip

SUFFIX = ".cases.yaml"
_SCRIPT = "#!/bin/sh\n"


class Case(NamedTuple):
    """One call and what is expected of it."""

    name: str
    line: int
    argv: Tuple[str, ...]
    env: Mapping[str, str]
    script: Optional[bytes]
    user: str
    pools: Tuple[Pool, ...]
    silent: bool
    user_policy: Optional[Policy]
    expect: Fields


class Cases(NamedTuple):
    """A file of cases."""

    partitions: Tuple[str, ...]
    cases: Tuple[Case, ...]


def beside(policy: str) -> str:
    """The cases file of a policy file, whether it exists or not."""
    path = Path(policy)
    return str(path.with_name(path.stem + SUFFIX)) if path.name else policy + SUFFIX


def _policy_of(cases: str) -> str:
    return cases[: -len(SUFFIX)] + ".yaml" if cases.endswith(SUFFIX) else cases


def run_cases(path: str, policy: Optional[Policy] = None) -> List[Finding]:
    """What fails in a cases file; empty if all is as expected.

    `policy` spares reading the policy beside it. Errors in either file are failures, too.
    """
    return list(examine_cases(path, policy).failures)


class Outcome(NamedTuple):
    """What came of a file of cases."""

    failures: Tuple[Finding, ...]
    #: Cases in the file.
    total: int = 0


def examine_cases(path: str, policy: Optional[Policy] = None) -> Outcome:
    """As `run_cases`, with the number of cases."""
    name = str(path)
    report = Report(name)
    try:
        own = load(_policy_of(name)) if policy is None else policy
        found = read_cases(read(name), report)
    except PolicyErrors as errors:
        return Outcome(errors.errors)
    except Unreadable:
        return Outcome(tuple(report.errors))
    if not report.errors:
        for case in found.cases:
            for key, message in unmet(decision(case, found.partitions, own), case.expect):
                report.error(case.line, f"{case.name}: {key}", message)
    return Outcome(tuple(report.errors), len(found.cases))


def decision(case: Case, partitions: Tuple[str, ...], policy: Policy) -> Decision:
    """What the router decides in a case."""
    ours = policy if case.user_policy is None else merge(case.user_policy, policy)
    request = read_request(case.argv, case.env, case.script)
    seen = silent(case.user) if case.silent else snapshot(case.user, case.pools, partitions)
    return decide(request, seen, (), ours, 0)


def unmet(found: Decision, expect: Fields) -> Iterator[Tuple[str, str]]:
    """Each expectation that a decision does not meet, as key and message."""
    single = {
        "action": found.action,
        "account": found.account,
        "qos": found.qos,
        "rule": found.rule,
        "exit": str(found.exit_code),
        "wait": str(found.wait_seconds),
    }
    for key, node in expect.items():
        if key in ("verdicts", "reasons"):
            yield from _candidates(found, key[:-1], node)
        elif key in ("why", "note"):
            text = found.why if key == "why" else "; ".join(found.notes)
            if _text(node) not in text:
                yield key, f"is {quote(text)}; expected it to contain {quote(_text(node))}"
        elif single[key] != _text(node):
            yield key, f"is {quote(single[key])}; expected {quote(_text(node))} ({found.why})"


def _candidates(found: Decision, field: str, expected: Node) -> Iterator[Tuple[str, str]]:
    assert isinstance(expected, Pairs)
    for name, (_, node) in expected.pairs.items():
        account, slash, qos = name.lower().partition("/")
        chosen = [c for c in found.candidates if c.account == account and qos in ("", c.qos)]
        if not chosen:
            yield f"{field}s.{name}", "is no candidate"
        for one in chosen:
            value = one.verdict if field == "verdict" else one.reason
            if value != _text(node):
                shown = f"{one.account}/{one.qos}" if slash or len(chosen) > 1 else name
                message = f"is {quote(value)}; expected {quote(_text(node))}"
                yield f"{field}s.{shown}", message + (f" ({one.why})" if one.why else "")


def _text(node: Node) -> str:
    return node.text if isinstance(node, Scalar) and not node.null else ""


def read_cases(raw: bytes, report: Report) -> Cases:
    """The cases in a file; errors go to the report. Raises `Unreadable` for what is no YAML."""
    root = parse(decode(raw, report), report)
    top = _fields(root, "", FILE_KEYS, report)
    partitions = _list(top.get("partitions"), "partitions", fields.named("a partition"), report)
    pools = _pools(top.get("pools"), "pools", report)
    user = _word(top.get("user"), "user", report) or "alice"
    cases = top.get("cases")
    found: List[Case] = []
    if not isinstance(cases, Items):
        report.error(root.line, "cases", "is missing or no list; expected a list of cases")
        return Cases((), ())
    for number, node in enumerate(cases.items, 1):
        case = _case(node, f"cases[{number}]", pools, user, report)
        if case is not None:
            found.append(case)
    return Cases(partitions or ("main",), tuple(found))


def _case(
    node: Node, path: str, pools: Dict[str, Fields], user: str, report: Report
) -> Optional[Case]:
    given = _fields(node, path, CASE_KEYS, report)
    for name in ("sbatch", "expect"):
        if given and name not in given:
            report.error(node.line, join(path, name), "is missing")
    mine = {name: dict(parts) for name, parts in pools.items()}
    for name, parts in _pools(given.get("pools"), join(path, "pools"), report).items():
        mine.setdefault(name, {}).update(parts)
    argv = _argv(given.get("sbatch"), join(path, "sbatch"), report)
    expect = _fields(given.get("expect"), join(path, "expect"), EXPECT_KEYS, report)
    for name in ("verdicts", "reasons"):
        if name in expect and not isinstance(expect[name], Pairs):
            report.error(expect[name].line, join(path, name), "expected a mapping of accounts")
    return Case(
        name=_word(given.get("name"), join(path, "name"), report) or path,
        line=node.line,
        argv=argv,
        env=_environment(given.get("env"), join(path, "env"), report),
        script=_script(given.get("script"), argv),
        user=_word(given.get("user"), join(path, "user"), report) or user,
        pools=tuple(_pool(name, parts, report) for name, parts in mine.items()),
        silent=_flag(given.get("silent"), join(path, "silent"), report),
        user_policy=_user_policy(given.get("user_policy"), report),
        expect=expect,
    )


def _fields(
    node: Optional[Node], path: str, valid: Tuple[str, ...], report: Report
) -> Dict[str, Node]:
    """The values of a mapping by key; unknown keys are errors."""
    if node is None:
        return {}
    if not isinstance(node, Pairs):
        report.error(node.line, path or "cases", f"is {kind(node)}; expected a mapping")
        return {}
    for name, (key, _) in node.pairs.items():
        if name not in valid:
            hint = nearest(name, valid) or f"; expected {one_of(valid)}"
            report.error(key.line, join(path, name), f"unknown key{hint}")
    return {name: value for name, (_, value) in node.pairs.items() if name in valid}


def _pools(node: Optional[Node], path: str, report: Report) -> Dict[str, Fields]:
    if node is None:
        return {}
    if not isinstance(node, Pairs):
        report.error(node.line, path, f"is {kind(node)}; expected a mapping of accounts")
        return {}
    return {
        name.lower(): _fields(value, join(path, name), POOL_KEYS, report)
        for name, (_, value) in node.pairs.items()
    }


def _pool(name: str, parts: Fields, report: Report) -> Pool:
    path = join("pools", name)
    account, _, qos = name.partition("/")

    def tres(key: str) -> Tres:
        return _tres(parts.get(key), join(path, key), report)

    pending = parts.get("pending_mine")
    rows = pending.items if isinstance(pending, Items) else [pending] if pending else []
    return Pool(
        account=account,
        qos=qos or account,
        limits=tres("limits"),
        others=_used(tres("used_by_others")),
        mine=_used(tres("used_by_me")),
        pending=tuple(_used(_tres(row, join(path, "pending_mine"), report)) for row in rows),
        per_job=tres("max_per_job"),
        per_user=tres("max_per_user"),
        flags=frozenset(_text(parts["flags"]).lower().split(","))
        if "flags" in parts
        else frozenset(),
        told=not _flag(parts.get("unknown"), join(path, "unknown"), report),
    )


def _tres(node: Optional[Node], path: str, report: Report) -> Tres:
    text = "" if node is None else fields.scalar(node, path, 'TRES such as "cpu=4,mem=16G"', report)
    try:
        return parse_tres(text or "")
    except (ValueError, KeyError, IndexError) as error:
        report.error(node.line if node else 1, path, f"{error}")
        return {}


def _used(tres: Tres) -> Tres:
    """With the untyped count of GPUs that Slurm shows beside typed ones."""
    typed = sum(amount for name, amount in tres.items() if name.startswith("gres/gpu:"))
    return {**tres, "gres/gpu": typed} if typed and "gres/gpu" not in tres else tres


def _argv(node: Optional[Node], path: str, report: Report) -> Tuple[str, ...]:
    if isinstance(node, Items):
        return tuple(_text(item) for item in node.items)
    text = "" if node is None else fields.scalar(node, path, "sbatch's arguments", report)
    try:
        return tuple(shlex.split(text or ""))
    except ValueError as error:
        report.error(node.line if node else 1, path, f"is {quote(text or '')}: {error}")
        return ()


def _script(node: Optional[Node], argv: Tuple[str, ...]) -> Optional[bytes]:
    if node is None and any(word.startswith("--wrap") for word in argv):
        return None
    text = _SCRIPT if node is None else _text(node)
    return text.encode("utf-8", "surrogateescape")


def _environment(node: Optional[Node], path: str, report: Report) -> Dict[str, str]:
    if node is None:
        return {}
    if not isinstance(node, Pairs):
        report.error(node.line, path, f"is {kind(node)}; expected a mapping of variables")
        return {}
    return {name: _text(value) for name, (_, value) in node.pairs.items()}


def _word(node: Optional[Node], path: str, report: Report) -> str:
    return "" if node is None else fields.scalar(node, path, "a word", report) or ""


def _flag(node: Optional[Node], path: str, report: Report) -> bool:
    text = "no" if node is None else _text(node)
    if text not in ("yes", "no", "true", "false"):
        report.error(node.line if node else 1, path, f"is {quote(text)}; expected yes or no")
    return text in ("yes", "true")


def _list(
    node: Optional[Node],
    path: str,
    one: Callable[[Node, str, Report], Optional[T]],
    report: Report,
) -> Tuple[T, ...]:
    return () if node is None else fields.one_or_more(node, path, one, report) or ()


def _user_policy(node: Optional[Node], report: Report) -> Optional[Policy]:
    return None if node is None else build.policy(node, report)
