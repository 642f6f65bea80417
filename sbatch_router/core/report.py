"""A decision in words and as plain data: what the shim says, `explain` prints and is logged."""

from __future__ import annotations

from .decide import BLOCKED, NEVER, NOT_ALLOWED, UNKNOWN_VERDICT, WAITS_MINE, WAITS_OTHERS
from .spell import amount
from .tres import UNKNOWN, endless

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Tuple

    from .decide import Candidate, Decision
    from .limits import Check
    from .request import Need, Request
    from .snapshot import Snapshot
    from .tres import Amount, Tres


def as_json(
    decision: Decision, request: Request, snapshot: Snapshot, now: float
) -> Dict[str, object]:
    """The object ``explain --json`` prints (DESIGN, Surface).

    Numbers are integers; unlimited is None, unknown is the text ``unknown``; memory is MiB,
    times are minutes.
    """
    need = decision.need
    return {
        "action": decision.action,
        "account": decision.account,
        "qos": decision.qos,
        "partition": decision.partition,
        "rule": decision.rule,
        "why": decision.why,
        "changed": decision.changed,
        "exit_code": decision.exit_code,
        "notes": list(decision.notes),
        "request": {
            "tres": dict(need.tres) if need is not None and not need.doubts else {},
            "array_tasks": request.array_tasks,
            "array_tasks_at_once": request.array_at_once,
            "time_limit_minutes": _number(need.time_limit) if need is not None else "unknown",
            "account": _given(request, "account"),
            "qos": _given(request, "qos"),
            "partition": _given(request, "partition"),
            "doubts": [*request.doubts, *(need.doubts if need is not None else ())],
            "settled_later": list(need.later) if need is not None else [],
        },
        "snapshot": {
            "source": snapshot.source,
            "age_seconds": max(0, round(now - snapshot.taken_at)),
            "troubles": list(snapshot.troubles),
        },
        "candidates": [_candidate(c) for c in decision.candidates],
    }


def _given(request: Request, option: str) -> Optional[Dict[str, str]]:
    given = request.given(option)
    return {"value": given.value, "origin": given.origin} if given else None


def _number(amount: Amount) -> object:
    return "unknown" if amount is UNKNOWN else amount


def _candidate(candidate: Candidate) -> Dict[str, object]:
    return {
        "account": candidate.account,
        "qos": candidate.qos,
        "partition": candidate.partition,
        "verdict": candidate.verdict,
        "reason": candidate.reason,
        "why": candidate.why,
        "refused": candidate.refused,
        "backlog": candidate.backlog,
        "starts": candidate.starts,
        "limits": [_check(c) for c in candidate.checks],
        "headroom": dict(candidate.headroom),
    }


def _check(check: Check) -> Dict[str, object]:
    return {
        "tres": check.tres or check.kind,
        "kind": check.kind,
        "where": check.where,
        "reason": check.reason,
        "limit": check.limit,
        "used": _number(check.used),
        "mine": _number(check.mine),
        "promised": check.promised,
        "requested": None if endless(check.kind, check.requested) else check.requested,
    }


def tres_words(tres: Tres) -> str:
    """``cpu=8 mem=122.07G gres/gpu=1``: what a job asks for, without node and billing."""
    shown = [f"{n}={amount(n, v)}" for n, v in tres.items() if n not in ("node", "billing")]
    return " ".join(shown)


def routed_line(decision: Decision) -> str:
    """The one line when the account changed."""
    what = f"{decision.account}/{decision.qos}"
    rule = f" (rule {decision.rule!r})" if decision.rule else ""
    if decision.action == "queue":
        return f"queued on {what}: {decision.why}{rule}"
    chosen = next(
        (c for c in decision.candidates if (c.account, c.qos) == (decision.account, decision.qos)),
        None,
    )
    return f"submitted to {what}: {_room(chosen, decision.need)}{rule}"


def _room(chosen: Optional[Candidate], need: Optional[Need]) -> str:
    if chosen is None or need is None:
        return "it fits now"
    parts = []
    for tres in ("gres/gpu", "mem", "cpu"):
        if need.tres.get(tres) and chosen.headroom.get(tres) is not None:
            free = amount(tres, chosen.headroom[tres])
            parts.append(
                f"{tres.rpartition('/')[2]} {amount(tres, need.tres[tres])} of {free} free"
            )
    return ", ".join(parts) or "nothing limits it there"


def refusal(decision: Decision, request: Request, holders: Mapping[str, str]) -> str:
    """The whole refusal: what was asked, one line a candidate, who holds it, what to do.

    `holders`: QOS name -> who uses it most, in words.
    """
    need = decision.need
    asked = tres_words(need.tres) if need is not None else ""
    if request.array_tasks > 1:
        asked += f", {request.array_tasks} tasks"
    lines = [f"sbatch-router: not submitted: {decision.why}"]
    if asked:
        lines.append(f"  asked: {asked}")
    width = max([len(_name(c)) for c in decision.candidates] or [0])
    for candidate in decision.candidates:
        lines.append(f"  {_name(candidate):<{width}}  {_line(candidate)}")
        holder = holders.get(candidate.qos)
        if candidate.verdict == WAITS_OTHERS and holder:
            lines.append(f"  {'':<{width}}  held by {holder}")
    lines += _next_steps(decision)
    return "\n".join(lines) + "\n"


def _name(candidate: Candidate) -> str:
    return f"{candidate.account}/{candidate.qos}" if candidate.qos else candidate.account


_WORDS = {
    NEVER: "never fits",
    WAITS_OTHERS: "full",
    WAITS_MINE: "busy with your own jobs",
    UNKNOWN_VERDICT: "not known",
}


def _line(candidate: Candidate) -> str:
    """One candidate: numbers and Slurm's reason, or why it is out of the question."""
    if candidate.verdict in (BLOCKED, NOT_ALLOWED):
        return candidate.why
    held = holding(candidate)
    words = _WORDS.get(candidate.verdict, candidate.verdict)
    if held is None:
        return f"{words}: {candidate.why}"
    limit, used, asked, own, promised = (
        amount(held.tres, value, held.kind)
        for value in (held.limit, held.used, held.requested, held.mine, held.promised)
    )
    mine = f" ({own} yours)" if isinstance(held.mine, int) and held.mine else ""
    queued = f", {promised} queued by you" if held.promised else ""
    return (
        f"{words}: {held.tres or held.kind} limit {limit}, used {used}{mine}{queued}, "
        f"asked {asked} [{candidate.reason or held.reason}]"
    )


def holding(candidate: Candidate) -> Optional[Check]:
    """The check that explains the verdict best."""
    checks = candidate.checks
    if candidate.verdict == NEVER:
        return next((c for c in checks if c.never()), None)
    return (
        next((c for c in checks if c.held_by_others()), None)
        or next((c for c in checks if c.held(c.requested)), None)
        or next((c for c in checks if c.held(c.requested_all)), None)
    )


def _next_steps(decision: Decision) -> List[str]:
    if decision.exit_code == 77:
        return [
            "  next: ask for less, or see `sbatch-router explain -- YOUR ARGUMENTS`;",
            "        SBATCH_ROUTER=off sbatch ... submits it as it is",
        ]
    full = [c for c in decision.candidates if c.verdict == WAITS_OTHERS]
    look = (
        f"squeue -A {','.join(dict.fromkeys(c.account for c in full))}" if full else "squeue --me"
    )
    return [
        f"  next: try again later; see who runs there: {look}",
        "        SBATCH_ROUTER=off sbatch ... queues it as it is; `when_full: queue` always does",
    ]


def log_fields(decision: Decision, request: Request, snapshot: Snapshot) -> Dict[str, object]:
    """What is worth keeping of a decision, as flat fields for the log."""
    need = decision.need
    verdicts = {_name(c): c.verdict for c in decision.candidates}
    reasons = {_name(c): c.reason for c in decision.candidates if c.reason}
    return {
        "action": decision.action,
        "account": decision.account,
        "qos": decision.qos,
        "unrouted": decision.unrouted,
        "partition": decision.partition,
        "rule": decision.rule,
        "why": decision.why,
        "changed": decision.changed,
        "exit_code": decision.exit_code,
        "job_name": request.job_name or "",
        "tres": dict(need.tres) if need is not None else {},
        "array_tasks": request.array_tasks,
        "verdicts": verdicts,
        "reasons": reasons,
        "source": snapshot.source,
    }


def to_json_line(fields: Mapping[str, object]) -> str:
    """One line of JSON. `import json` costs as much as starting Python; this does not."""
    return _dump(fields)


def _dump(value: object) -> str:
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_text(str(k))}:{_dump(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(_dump(v) for v in value) + "]"
    return _text(str(value))


def _text(value: str) -> str:
    if value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
        return f'"{value}"'
    out = []
    for char in value:
        code = ord(char)
        if char in '"\\':
            out.append("\\" + char)
        elif 32 <= code < 127:
            out.append(char)
        elif code < 0x10000:
            out.append(f"\\u{code:04x}")
        else:
            code -= 0x10000
            out.append(f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}")
    return '"' + "".join(out) + '"'


__all__: Tuple[str, ...] = (
    "as_json",
    "holding",
    "log_fields",
    "refusal",
    "routed_line",
    "to_json_line",
    "tres_words",
)
