"""Who holds a pool: asked only when a job is about to be refused, and then kept for a while."""

from __future__ import annotations

from .core.decide import WAITS_OTHERS
from .core.report import holding
from .core.spell import amount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Tuple

    from .core.limits import Check
    from .core.snapshot import Snapshot
    from .route import Considered

#: How many users are named for one pool.
NAMED = 3


def holders(considered: Considered, everyone: Snapshot) -> Dict[str, str]:
    """QOS name -> its heaviest users in words (``bob 250G, carol 12G``), for the full pools.

    `everyone` is a snapshot with all users' rows. A QOS whose users are hidden (PrivateData)
    is left out.
    """
    found = {}
    for candidate in considered.decision.candidates:
        check = holding(candidate)
        if candidate.verdict == WAITS_OTHERS and check is not None:
            users = heaviest(check, everyone)
            if users:
                found[candidate.qos] = in_words(users, check)
    return found


def heaviest(check: Check, everyone: Snapshot) -> List[Tuple[str, int]]:
    """(user, amount) of those who use what `check` limits, the heaviest first."""
    used: Dict[str, int] = {}
    if check.where.startswith("qos ") and isinstance(everyone.qos, dict):
        qos = everyone.qos.get(check.where[4:])
        rows = qos.users.items() if qos is not None else ()
        for user, row in rows:
            limit = (
                row.tres.get("MaxTRESPU", {}).get(check.tres)
                if check.tres
                else row.counts.get("MaxJobsPU")
            )
            if limit is not None and isinstance(limit.used, int):
                used[user] = limit.used
    elif isinstance(everyone.assocs, dict):
        account = check.where.rpartition(" ")[2]
        for assoc in everyone.assocs.values():
            if assoc.user and assoc.account == account:
                limit = (
                    assoc.limits.tres.get("GrpTRES", {}).get(check.tres)
                    if check.tres
                    else assoc.limits.counts.get("GrpJobs")
                )
                if limit is not None and isinstance(limit.used, int):
                    used[assoc.user] = used.get(assoc.user, 0) + limit.used
    return sorted(((u, n) for u, n in used.items() if n), key=lambda pair: -pair[1])


def in_words(users: List[Tuple[str, int]], check: Check) -> str:
    parts = [f"{shown_name(user)} {amount(check.tres, used)}" for user, used in users[:NAMED]]
    more = len(users) - NAMED
    if more > 0:
        parts.append(f"{more} more")
    return ", ".join(parts)


def shown_name(user: str) -> str:
    """22.05 prints a QOS row's user as a number."""
    if not user.isdigit():
        return user
    import pwd

    try:
        return pwd.getpwuid(int(user)).pw_name
    except (KeyError, OverflowError):
        return f"uid {user}"
