"""The policy, checked: what `sbatch_router.policyfile` makes of a YAML file."""

from __future__ import annotations

from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Optional, Tuple

    #: Matcher name (``gpus``, ``wildcards.sample``) -> what must hold; all of them must.
    When = Dict[str, "Test"]


class Test(Record):
    """One matcher's condition: ``>0``, ``<=4h``, ``qc_*``, ``[a, b]``.

    `op` and its `values`, in the matcher's unit (a count, MiB, minutes; None: unlimited):

    ======================  ============================================================
    ``==`` ``!=``           numbers: is any of them, is none of them
    ``<`` ``<=`` ``>`` ``>=``  one number
    ``..``                  two numbers, both ends belong to the range
    ``glob`` ``!glob``      shell patterns: any matches, none matches (core/match.py)
    ``list``                Tests: one that is not negative holds, and every negative one
    ======================  ============================================================
    """

    op: str
    values: Tuple[object, ...]
    #: As the user wrote it, for explain.
    text: str


class Account(Record):
    """An account the router may choose. `qos` None: the association's default QOS."""

    name: str
    qos: Optional[Tuple[str, ...]] = None
    only: When = {}


class Blocked(Record):
    """An account the router must not choose, and why. Dates are ISO texts (2026-12-31)."""

    account: str
    reason: str
    since: Optional[str] = None
    review: Optional[str] = None
    #: The file that says so.
    file: str = ""


class Rule(Record):
    """The first rule whose `when` holds decides the order, and may narrow the candidates.

    A job that no rule matches is treated as by a rule that says nothing else.
    """

    #: Unique; ``rule 2`` for the second rule if the user gave it no name.
    name: str
    when: When = {}
    #: Of gpu, mem, cpu, node, billing, fit, backlog, fairshare, primary, listed. Empty: gpu,
    #: mem, cpu for a job with GPUs, mem, cpu for others.
    order: Tuple[str, ...] = ()
    #: (account, qos) pairs in the user's order; qos None: those of the account's own entry.
    #: None: all of the policy's accounts.
    candidates: Optional[Tuple[Tuple[str, Optional[str]], ...]] = None
    #: These override the policy's own where not None.
    when_full: Optional[WhenFull] = None
    own_backlog: Optional[str] = None


class WhenFull(Record):
    """``refuse``, ``queue``, or ``wait`` with the longest wait in seconds."""

    action: str
    wait_seconds: int = 0


class Policy(Record):
    """A whole policy. Account and QOS names are lower case, as Slurm compares them."""

    #: In order of preference. Empty: a site's file that only blocks; nothing is ever moved.
    accounts: Tuple[Account, ...]
    blocked: Tuple[Blocked, ...] = ()
    rules: Tuple[Rule, ...] = ()
    when_full: WhenFull = WhenFull("refuse")
    #: ``queue`` or ``refuse``.
    own_backlog: str = "queue"
    #: Origin (cli, env, script) -> ``keep``, ``prefer`` or ``override``.
    explicit_account: Dict[str, str] = {"cli": "keep", "env": "prefer", "script": "prefer"}
    #: ``submit`` or ``refuse``.
    when_slurm_unreachable: str = "submit"
    #: ``auto``, ``pyslurm`` or ``scontrol``.
    source: str = "auto"
    #: Seconds a snapshot stays fresh.
    cache_seconds: int = 5
    #: The file(s) it came from, the user's first.
    files: Tuple[str, ...] = ()
