"""What Slurm's job states mean to Snakemake: ``running``, ``success`` or ``failed``.

Source: JOB STATE CODES in squeue(1) and sacct(1), and job_state_string() in Slurm's
src/common/slurm_protocol_defs.c. Job ids are text as Slurm prints them: ``123``, ``123_4``,
``123_[5-9%2]``, ``123+1``, ``123;cluster``.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Optional, Tuple

RUNNING, SUCCESS, FAILED = "running", "success", "failed"

#: Final states without success. SPECIAL_EXIT waits for an administrator, and REVOKED ran
#: elsewhere: neither ever ends by itself here.
_FAILED = (
    "BOOT_FAIL", "CANCELLED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL",
    "OUT_OF_MEMORY", "PREEMPTED", "RECONFIG_FAIL", "REVOKED", "SPECIAL_EXIT", "TIMEOUT",
)  # fmt: skip
_RUNNING = (
    "COMPLETING", "CONFIGURING", "EXPEDITING", "PENDING", "POWER_UP_NODE", "REQUEUED",
    "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD", "RUNNING", "SIGNALING",
    "STAGE_OUT", "STOPPED", "SUSPENDED", "UPDATE_DB",
)  # fmt: skip


def word(state: str) -> Optional[str]:
    """The word for one state as squeue or sacct prints it; None for one we do not know.

    sacct adds who cancelled (``CANCELLED by 1001``), and a ``+`` where it cut the name.
    """
    name = state.strip().upper().partition(" ")[0]
    cut = name.endswith("+")
    name = name.rstrip("+")
    if not name:
        return None
    if name == "COMPLETED" or (cut and len(name) > 6 and "COMPLETED".startswith(name)):
        return SUCCESS
    for names, meaning in ((_FAILED, FAILED), (_RUNNING, RUNNING)):
        if name in names or (cut and any(full.startswith(name) for full in names)):
            return meaning
    return None


def plain_id(given: str) -> Tuple[str, str]:
    """``123;clustera`` as ("123", "clustera"); the cluster is empty where none is named."""
    ident, _, cluster = given.strip().partition(";")
    return ident.strip(), cluster.strip()


def base_id(ident: str) -> str:
    """``123`` of ``123_4``, ``123_[5-9%2]`` and ``123+1``."""
    for sign in "_+":
        ident = ident.partition(sign)[0]
    return ident


def task_numbers(ident: str) -> Optional[List[Tuple[int, int, int]]]:
    """(first, last, step) of each range in ``123_[1,5-9:2%3]`` or ``123_4``; None: no tasks."""
    tasks = ident.partition("_")[2].strip("[]").partition("%")[0]
    if not tasks:
        return None
    found = []
    for part in tasks.split(","):
        ends, _, step = part.partition(":")
        first, _, last = ends.partition("-")
        try:
            found.append((int(first), int(last or first), int(step or 1)))
        except ValueError:
            return None
    return found


def covers(row: str, asked: str) -> bool:
    """Whether the row called `row` stands for (part of) the job `asked` for."""
    if base_id(row) != base_id(asked):
        return False
    wanted = task_numbers(asked)
    there = task_numbers(row)
    if wanted is None or there is None:
        return "+" not in asked or row == asked or "+" not in row
    return any(first <= high and low <= last for first, last, _ in wanted for low, high, _ in there)


def combine(words: Iterable[str]) -> Optional[str]:
    """One word for all parts of a job: final only when every part is; None for no part."""
    found = set(words)
    for meaning in (RUNNING, FAILED, SUCCESS):
        if meaning in found:
            return meaning
    return None


def rows_of(table: Dict[str, Dict[str, str]], asked: str) -> Dict[str, str]:
    """The rows of a table (base id -> row id -> word) that stand for `asked`."""
    rows = table.get(base_id(asked), {})
    return {row: found for row, found in rows.items() if covers(row, asked)}


def settle(
    queue: Dict[str, Dict[str, str]], accounting: Dict[str, Dict[str, str]], asked: str
) -> Optional[str]:
    """The word for `asked` from both sources; None when neither knows it.

    The queue is newer than accounting: a row there overrules accounting's rows for the same
    part (a requeued job is pending in one and has failed in the other).
    """
    known = dict(rows_of(accounting, asked))
    for row, found in rows_of(queue, asked).items():
        for old in [o for o in known if covers(o, row) and covers(row, o)]:
            del known[old]
        known[row] = found
    return combine(known.values())
