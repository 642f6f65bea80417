"""``scontrol -o show assoc_mgr``: the limits that slurmctld enforces, and what is used of them.

The form is that of _print_assoc_mgr_info in src/scontrol/info_assoc_mgr.c: sections for users,
associations and QOS, in that order, each with a heading or a line that says it is empty, and
one line a record.
"""

from __future__ import annotations

from ..core.record import Record
from ..core.snapshot import Assoc, Qos, Scope
from ..core.tres import NO_LIMIT, UNKNOWN, Limit, parse_limit, parse_limits
from .text import ParseError, decode, parse_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, Dict, List, Optional, Tuple, Union

    from ..core.tres import LimitMap, Unknown

    AssocKey = Tuple[str, str, str]

WHERE = "scontrol show assoc_mgr"

_START = b"Current Association Manager state\n"
_USERS = (b"User Records\n", b"No users currently cached in Slurm.\n")
_ASSOCS = (b"Association Records\n", b"No associations currently cached in Slurm.\n")
_QOS = (b"QOS Records\n", b"No QOS currently cached in Slurm.\n")

_TRES_KINDS = frozenset(
    (
        "GrpTRES",
        "GrpTRESMins",
        "GrpTRESRunMins",
        "MaxTRESPJ",
        "MaxTRESPN",
        "MaxTRESMinsPJ",
        "MinTRESPJ",
        "MaxTRESPU",
        "MaxTRESRunMinsPU",
        "MaxTRESPA",
        "MaxTRESRunMinsPA",
    )
)
#: Of these, what is used is worth keeping even where there is no limit.
_SHOWN_KINDS = frozenset(("GrpTRES", "MaxTRESPU", "MaxTRESPA"))
_COUNT_KINDS = frozenset(
    (
        "GrpJobs",
        "GrpSubmitJobs",
        "GrpWall",
        "MaxJobs",
        "MaxSubmitJobs",
        "MaxWallPJ",
        "MinPrioThresh",
        "MaxJobsPU",
        "MaxSubmitJobsPU",
        "MaxJobsPA",
        "MaxSubmitJobsPA",
    )
)


class AssocMgr(Record):
    """One answer of the association manager.

    `assocs` holds accounts' own records and mine (all users' with `everyone`); `qos` has no
    flags, as only sacctmgr tells them; its `defaults` are what the rows of others show.
    `default_account` is UNKNOWN where the users section was not asked for.
    """

    qos: Dict[str, Qos]
    assocs: Dict[AssocKey, Assoc]
    default_account: Union[str, None, Unknown] = UNKNOWN


def parse_assoc_mgr(
    data: bytes,
    user: str,
    uid: int,
    accounts: Optional[Collection[str]] = None,
    everyone: bool = False,
) -> AssocMgr:
    """Read the answer to ``flags=assoc,qos`` (``users`` as well, if wanted) for one user.

    Kept are the records of `accounts` (lower case; None: all) and of what is above them, and
    of each QOS my own row and those of `accounts`. `everyone` keeps all users' rows, under the
    name that Slurm printed (22.05 prints numbers in a QOS). Raises ParseError, also for an
    answer that was cut off: the QOS section must be there, since it comes last.
    """
    if not data.strip():
        raise ParseError(WHERE, "the answer was empty")
    start = data.find(_START)
    if start < 0:
        raise ParseError(WHERE, "no association manager records in the answer")
    if not data.endswith(b"\n"):
        raise ParseError(WHERE, "the answer was cut off")
    users, assocs, qos = _sections(data[start + len(_START) :])
    me = _Me(user, uid)
    return AssocMgr(
        qos=_read_all_qos(qos, me, accounts, everyone),
        assocs=_read_assocs(assocs, me, accounts, everyone),
        default_account=_default_account(users, me),
    )


class _Me:
    """How Slurm prints the user: ``alice(1001)``, in older QOS rows ``1001``."""

    __slots__ = ("assoc", "assoc_uid", "number", "row_new", "row_old", "uid_new", "user")

    def __init__(self, user: str, uid: int) -> None:
        # Printed with %u in an association and with %d in a QOS.
        signed = uid - 2**32 if uid >= 2**31 else uid
        self.user = user
        self.number = f"({uid})"
        self.assoc = f" UserName={user}(".encode("utf-8", "surrogateescape")
        self.assoc_uid = f"({uid}) ".encode()
        self.uid_new = f"({signed})={{"
        self.row_new = f" {user}({signed})={{"
        self.row_old = f" {signed}={{"


def _sections(body: bytes) -> Tuple[List[bytes], List[bytes], List[bytes]]:
    """The lines of the users, associations and QOS sections."""
    at_qos = _heading(body, _QOS)
    if at_qos is None:
        raise ParseError(WHERE, "the answer was cut off before the QOS records")
    at_assocs = _heading(body, _ASSOCS)
    head = at_assocs if at_assocs is not None and at_assocs[0] < at_qos[0] else at_qos
    users = body[: head[0]].split(b"\n")
    assocs = body[head[1] : at_qos[0]].split(b"\n") if head is not at_qos else []
    return users, assocs, body[at_qos[1] :].split(b"\n")


def _heading(body: bytes, headings: Tuple[bytes, bytes]) -> Optional[Tuple[int, int]]:
    """Where a section's heading starts and ends; it stands on a line of its own."""
    for heading in headings:
        if body.startswith(heading):
            return 0, len(heading)
        at = body.find(b"\n" + heading)
        if at >= 0:
            return at + 1, at + 1 + len(heading)
    return None


def _default_account(lines: List[bytes], me: _Me) -> Union[str, None, Unknown]:
    for line in lines:
        if line.startswith(b"UserName="):
            name, found, rest = decode(line)[9:].partition(" DefAccount=")
            if found and (name.endswith(me.number) or name.rpartition("(")[0] == me.user):
                account = rest.partition(" DefWckey=")[0].strip().lower()
                return account if account and account != "(null)" else None
    return UNKNOWN


def _read_assocs(
    lines: List[bytes], me: _Me, accounts: Optional[Collection[str]], everyone: bool
) -> Dict[AssocKey, Assoc]:
    """The records of `accounts`, of what is above them, and of the users that count."""
    own: Dict[str, bytes] = {}
    others: List[bytes] = []
    for line in lines:
        if not line.startswith(b"ClusterName="):
            continue  # a comment may hold line ends
        # An answer may hold thousands of lines: look only at the start of each.
        head = line.partition(b" Priority=")[0]
        if b" UserName= " in head:
            own[_account_of(head)] = line
        elif everyone or me.assoc in head or me.assoc_uid in head:
            others.append(line)
    found: Dict[AssocKey, Assoc] = {}
    for name in list(own) if accounts is None else accounts:
        while name in own:
            assoc = _read_assoc(decode(own.pop(name)), me)
            found[assoc.account, "", assoc.partition] = assoc
            name = assoc.parent
    for line in others:
        if accounts is None or _account_of(line.partition(b" Priority=")[0]) in accounts:
            assoc = _read_assoc(decode(line), me)
            found[assoc.account, assoc.user, assoc.partition] = assoc
    return found


def _account_of(head: bytes) -> str:
    """The account in the part of a line that comes before ``Priority=``."""
    return decode(head.partition(b" Account=")[2].partition(b" UserName=")[0]).lower()


def _read_assoc(line: str, me: _Me) -> Assoc:
    head, found, rest = line.partition(" Priority=")
    names, found_user, who = head.partition(" UserName=")
    owner, found_partition, partition = who.partition(" Partition=")
    account = names.partition(" Account=")[2].lower()
    if not (found and found_user and found_partition and account):
        raise ParseError(WHERE, f"not an association: {line[:80]!r}")
    user = owner.strip()
    if user.endswith(me.number) or user.rpartition("(")[0] == me.user:
        user = me.user
    elif user:
        user = user.rpartition("(")[0]
    fields = _fields(rest)
    parent = fields.get("ParentAccount")
    if parent is None:
        raise ParseError(WHERE, f"an association without ParentAccount: {line[:80]!r}")
    return Assoc(
        account=account,
        user=user,
        partition=partition.strip().lower(),
        # A user's record hangs below the account's own; Slurm prints no parent there.
        parent=account if user else parent.rpartition("(")[0].lower(),
        limits=_scope(fields),
        fairshare=_factor(fields.get("SharesRaw/Norm/Level/Factor", "")),
    )


def _factor(shares: str) -> Optional[float]:
    """The last of ``1/0.33/3/0.50``; None when it is no number."""
    try:
        return float(shares.rpartition("/")[2])
    except ValueError:
        return None


def _fields(text: str) -> Dict[str, str]:
    """``Key=Value`` words; the first of a key counts, as free text comes last (Comment)."""
    found: Dict[str, str] = {}
    for word in text.split(" "):
        key, equals, value = word.partition("=")
        if equals and key not in found:
            found[key] = value
    return found


def _scope(fields: Dict[str, str]) -> Scope:
    """The limits that were printed: a kind that was not is absent, hence unknown."""
    tres: Dict[str, LimitMap] = {}
    counts: Dict[str, Limit] = {}
    for key, value in fields.items():
        if key in _TRES_KINDS:
            tres[key] = _limit_map(key, value)
        elif key in _COUNT_KINDS:
            counts[key] = _limit(key, value)
    if tres.get("GrpTRESMins") and not tres.get("GrpTRESRunMins"):
        # AccountingStorageEnforce=safe adds what running jobs will spend, limited or not.
        tres["GrpTRESRunMins"] = _every_limit("GrpTRESRunMins", fields.get("GrpTRESRunMins", ""))
    return Scope(tres, counts)


def _limit(kind: str, value: str) -> Limit:
    try:
        return parse_limit(value) if value else NO_LIMIT
    except ValueError:
        raise ParseError(WHERE, f"{kind}: not a limit: {value[:80]!r}") from None


def _limit_map(kind: str, value: str) -> LimitMap:
    if not value:
        return {}
    # ``cpu=N(0),mem=N(0),...``: nine kinds of ten, and nobody asks what is used there.
    if kind not in _SHOWN_KINDS and value.count("=N(") == value.count("="):
        return {}
    return _every_limit(kind, value)


def _every_limit(kind: str, value: str) -> LimitMap:
    try:
        return parse_limits(value)
    except (ValueError, KeyError, OverflowError):
        raise ParseError(WHERE, f"{kind}: not a list of limits: {value[:80]!r}") from None


def _read_all_qos(
    lines: List[bytes], me: _Me, accounts: Optional[Collection[str]], everyone: bool
) -> Dict[str, Qos]:
    found: Dict[str, Qos] = {}
    for line in lines:
        if line.startswith(b"QOS="):
            qos = _read_qos(decode(line), me, accounts, everyone)
            found[qos.name] = qos
    return found


def _read_qos(line: str, me: _Me, accounts: Optional[Collection[str]], everyone: bool) -> Qos:
    title, _, rest = line[4:].partition(" UsageRaw=")
    name = title.rpartition("(")[0].lower()
    own, found_accounts, rows = rest.partition(" Account Limits=")
    account_rows, found_users, user_rows = rows.partition(" User Limits=")
    if not (name and found_accounts and found_users):
        raise ParseError(WHERE, f"not a whole QOS: {line[:80]!r}")
    fields = _fields(own)
    kept = {
        who.lower(): _scope(_fields(row))
        for who, row in _rows(account_rows, "No Accounts")
        if accounts is None or everyone or who.lower() in accounts
    }
    return Qos(
        name=name,
        limits=_scope(fields),
        users=_user_rows(user_rows, me, everyone),
        accounts=kept,
        defaults=_defaults(account_rows, user_rows),
        priority=_priority(fields.get("Priority", "")),
    )


def _priority(text: str) -> Union[int, None, Unknown]:
    if text == "NONE":
        return None
    number = parse_count(text)
    return UNKNOWN if number is None else number


def _rows(text: str, none: str) -> List[Tuple[str, str]]:
    """`` name={...} name={...}`` as (name, what is inside the braces)."""
    found: List[Tuple[str, str]] = []
    if text.strip() == none:
        return found
    at = 0
    while True:
        opening = text.find("={", at)
        if opening < 0:
            break
        closing = text.find("}", opening)
        if closing < 0:
            raise ParseError(WHERE, f"an open brace: {text[opening:][:80]!r}")
        found.append((text[at:opening].strip(), text[opening + 2 : closing]))
        at = closing + 1
    if text[at:].strip():
        raise ParseError(WHERE, f"not a row of limits: {text[at:][:80]!r}")
    return found


def _user_rows(text: str, me: _Me, everyone: bool) -> Dict[str, Scope]:
    if everyone:
        found: Dict[str, Scope] = {}
        for who, row in _rows(text, "No Users"):
            printed = f" {who}={{"
            if printed in (me.row_new, me.row_old) or printed.endswith(me.uid_new):
                name = me.user
            else:
                name = who.rpartition("(")[0] or who
            found[name] = _scope(_fields(row))
        return found
    stripped = text.strip()
    if stripped and stripped != "No Users" and not stripped.endswith("}"):
        raise ParseError(WHERE, f"not a row of limits: {stripped[-80:]!r}")
    for mark in (me.row_new, me.row_old, me.uid_new):
        at = text.find(mark)
        if at >= 0:
            begin = at + len(mark)
            return {me.user: _scope(_fields(text[begin : text.index("}", begin)]))}
    return {}


def _defaults(account_rows: str, user_rows: str) -> Union[Scope, Unknown]:
    """The limits of one who has no row: those of any row, as they are the QOS's, unused."""
    tres: Dict[str, LimitMap] = {}
    counts: Dict[str, Limit] = {}
    for text in (account_rows, user_rows):
        opening = text.find("={")
        if opening >= 0:
            row = _scope(_fields(text[opening + 2 :].partition("}")[0]))
            for kind, limits in row.tres.items():
                tres[kind] = {
                    name: Limit(limit.limit, 0)
                    for name, limit in limits.items()
                    if limit.limit is not None
                }
            for kind, limit in row.counts.items():
                counts[kind] = Limit(limit.limit, 0)
    return Scope(tres, counts) if tres or counts else UNKNOWN
