"""For Snakefiles: which account each item, or one job, should use (docs/how-to-snakemake.md).

    from sbatch_router.snakemake import assign, pick

    ACCOUNT = dict(zip(CYCLES, assign(CYCLES, config, mem_gb=125)))

Where the numbers come from, the first that there is:

1. ``config["live_accounts"]``: a list or its JSON, as ``sbatch-router run`` puts it there;
2. Slurm, asked now, when there is a policy and plain ``snakemake`` was run;
3. the static ``gpu_slots`` and ``cpu_slots`` of ``config["resources"]["accounts"]``.

Importing this imports nothing else; with the first source nothing is asked of Slurm.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

    from .core.assign import Job, Room

#: What a bare ``snakemake`` was told by Slurm, for the jobs it starts: they read the Snakefile
#: again, and must neither ask again nor come to another answer.
VARIABLE = "SBATCH_ROUTER_LIVE_ACCOUNTS"


class AccountsError(ValueError):
    """The accounts cannot be told from the config; the text says what is wrong, and the way out."""


def assign(
    items: Iterable[object],
    config: Mapping[str, Any],
    *,
    gpus: Optional[int] = None,
    cpu: int = 0,
    mem_gb: float = 0,
) -> List[str]:
    """An account name for each of `items`, in order.

    Proportional to the slots each account has for jobs of this size; accounts that other
    people have filled get none; what is more than the slots hold is spread by the same
    proportion. The same input gives the same list.

    `gpus`, `cpu` and `mem_gb` are what one item's job takes. Without `gpus` it is 1, or 0
    where no account has GPUs at all. Give `mem_gb`: a free GPU is of no use to a job whose
    memory is not free beside it. Raises `AccountsError`.
    """
    from .core import assign as core

    count = len(list(items))
    _numbers(gpus=0 if gpus is None else gpus, cpu=cpu, mem_gb=mem_gb)
    found = _accounts(config)
    if gpus is None:
        gpus = 1 if found.has_gpus() else 0
    static = found.gpu if gpus else found.cpu
    return core.assign(count, found.rooms(gpus), static, found.job(gpus, cpu, mem_gb))


def pick(config: Mapping[str, Any], cpu: int = 1, mem_gb: float = 0, gpus: int = 0) -> str:
    """The best account for one job of this size: where it fits, and most is left.

    Most GPUs, then memory, then CPUs for a job with GPUs, else memory, then CPUs: the order
    of the policy's default rule. Without live data the first account of the config that has
    such slots. Raises `AccountsError`.
    """
    from .core import assign as core

    _numbers(gpus=gpus, cpu=cpu, mem_gb=mem_gb)
    found = _accounts(config)
    rooms, job = found.rooms(gpus), found.job(gpus, cpu, mem_gb)
    if found.live:
        return core.pick(rooms, job)
    static = found.gpu if gpus else found.cpu
    able = [room for room in rooms if core.slots(room, job)]
    able = able or [room for room in rooms if static.get(room.name)]
    return (able or rooms)[0].name


def _numbers(**sizes: object) -> None:
    """Raise `AccountsError` for a size that is no finite number, such as ``"62.5"``."""
    for name, value in sizes.items():
        if not isinstance(value, (int, float)) or value - value != 0:
            raise AccountsError(f"{name}: {value!r} is no number")


def _mib(gigabytes: float) -> int:
    return max(0, round(gigabytes * 1024))


class _Accounts:
    """The live rooms (none: there are no live data), and the config's static slots."""

    def __init__(self, live: Sequence[Room], entries: Sequence[Dict[str, Any]]) -> None:
        self.live = live
        self.entries = entries
        self.gpu = {e["name"]: _number(e.get("gpu_slots")) for e in entries}
        self.cpu = {e["name"]: _number(e.get("cpu_slots")) for e in entries}

    def has_gpus(self) -> bool:
        return any(room.gpu for room in self.live) or any(self.gpu.values())

    def rooms(self, gpus: int) -> Sequence[Room]:
        return self.live or [_static_room(entry, gpus) for entry in self.entries]

    def job(self, gpus: int, cpu: int, mem_gb: float) -> Job:
        """The job; a static slot is a place for one job, whatever its GPUs and CPUs."""
        from .core.assign import Job

        mem = _mib(mem_gb)
        return Job(gpus, cpu, mem) if self.live else Job(1 if gpus else 0, 0, mem)


def _accounts(config: Mapping[str, Any]) -> _Accounts:
    entries = _static(config)
    listed, blocked = _live(config)
    if listed:
        rooms = [_room(entry) for entry in listed]
        own = {entry["name"].lower() for entry in entries}
        # A config's own list narrows; if none of it is usable now, live data win.
        chosen = [room for room in rooms if room.name.lower() in own] or rooms
        return _Accounts(_in_order(chosen, entries), entries)
    left = [e for e in entries if e["name"].lower() not in blocked]
    if not left:
        raise AccountsError(
            "no account to choose from: start Snakemake with `sbatch-router run -- snakemake "
            "...`, or list accounts under resources: accounts: in the config"
            + (f" (blocked by the policy: {', '.join(sorted(blocked))})" if blocked else "")
        )
    return _Accounts((), left)


def _in_order(rooms: Sequence[Room], entries: Sequence[Dict[str, Any]]) -> List[Room]:
    """As the config lists them; the live order for the rest."""
    rank = {entry["name"].lower(): number for number, entry in enumerate(entries)}
    return sorted(rooms, key=lambda room: rank.get(room.name.lower(), len(rank)))


# -- what the config says -----------------------------------------------------------------------


def _static(config: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The entries of ``resources: accounts:``; a bare name is an account without slots."""
    resources = config.get("resources")
    listed = resources.get("accounts") if isinstance(resources, dict) else None
    return _entries(listed, 'config["resources"]["accounts"]') if listed else []


def _entries(listed: object, where: str) -> List[Dict[str, Any]]:
    if not isinstance(listed, (list, tuple)):
        raise AccountsError(f"{where} is no list: {str(listed)[:80]!r}")
    found = []
    for entry in listed:
        if isinstance(entry, str):
            entry = {"name": entry}
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise AccountsError(f"{where}: an entry without a name: {str(entry)[:80]!r}")
        found.append(entry)
    return found


def _static_room(entry: Dict[str, Any], gpus: int) -> Room:
    from .core.assign import Room

    mem = entry.get("mem_gb")
    return Room(
        entry["name"],
        _number(entry.get("gpu_slots")),
        None if gpus else _number(entry.get("cpu_slots")),
        None if mem is None else _mib(_real(mem, "mem_gb", entry)),
    )


def _room(entry: Dict[str, Any]) -> Room:
    from .core.assign import Room

    def left(key: str) -> Optional[float]:
        value = entry.get(key)
        return None if value is None else max(0.0, _real(value, key, entry))

    gpu, cpu, mem = left("gpu_avail"), left("cpu_avail"), left("mem_avail_gb")
    takes = entry.get("takes", ("gpu", "cpu"))
    return Room(
        entry["name"],
        int(gpu or 0),
        None if cpu is None else int(cpu),
        None if mem is None else _mib(mem),
        "gpu" in takes,
        "cpu" in takes,
    )


def _real(value: object, key: str, entry: Dict[str, Any]) -> float:
    """A number; Snakemake hands the numbers inside ``--config`` values on as text."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise AccountsError(
            f"account {entry['name']}: {key} is no number: {str(value)[:40]!r}"
        ) from None


def _number(value: object) -> int:
    """A count of slots; what is no number counts as none."""
    try:
        return max(0, int(value))  # type: ignore[call-overload,no-any-return]
    except (TypeError, ValueError):
        return 0


# -- what is live -------------------------------------------------------------------------------


def _live(config: Mapping[str, Any]) -> Tuple[List[Dict[str, Any]], frozenset[str]]:
    """The live entries (empty: none), and the blocked accounts when a policy was read."""
    given = config.get("live_accounts")
    if given is None:
        return _asked()
    return _decoded(given, 'config["live_accounts"]'), frozenset()


def _decoded(given: object, where: str) -> List[Dict[str, Any]]:
    if isinstance(given, str):
        if not given.strip():
            return []
        import json

        try:
            given = json.loads(given)
        except ValueError as error:
            raise AccountsError(
                f"{where} is no JSON ({error}): write it with json.dumps, or let "
                f"`sbatch-router run` do it: {str(given)[:60]!r}"
            ) from None
    return _entries(given, where)


#: The answer of this process; asking once is enough for a whole Snakefile.
_answers: List[Tuple[List[Dict[str, Any]], frozenset[str]]] = []


def _asked() -> Tuple[List[Dict[str, Any]], frozenset[str]]:
    """Live entries from Slurm, asked once a Snakemake run; empty when it cannot be had."""
    if not _answers:
        _answers.append(_ask())
    return _answers[0]


def _ask() -> Tuple[List[Dict[str, Any]], frozenset[str]]:
    if _is_job():
        return _decoded(os.environ.get(VARIABLE, ""), "$" + VARIABLE), frozenset()
    os.environ.pop(VARIABLE, None)
    from . import accounts

    try:
        entries, blocked, trouble = accounts.for_snakefile()
    except Exception as error:
        # A Snakefile must load without us: the static slots remain.
        entries, blocked, trouble = [], frozenset(), f"{type(error).__name__}: {error}"
    if trouble:
        text = f"sbatch-router: no live accounts, using the config's static slots: {trouble}\n"
        sys.stderr.write(text)
    if entries:
        import json

        os.environ[VARIABLE] = json.dumps(entries)
    return entries, blocked


def _is_job() -> bool:
    """Whether this Snakemake was started by another one, to run a job of it."""
    words = sys.argv
    for word, value in zip(words, [*words[1:], ""]):
        mode = word[7:] if word.startswith("--mode=") else value if word == "--mode" else ""
        if mode in ("remote", "subprocess"):
            return True
    return False


__all__ = ["AccountsError", "assign", "pick"]
