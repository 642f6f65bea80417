"""Each of my jobs counts at least once, and once when nothing moved while we looked.

A model of slurmctld: every job is promised, arrives, perhaps starts, perhaps ends, at whole
moments; assoc_mgr is read at one moment and squeue at another, in either order, and what the
two and the ledger show is handed to the code.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbatch_router.core.ledger import Promise
from sbatch_router.core.settle import NO_ID, carry, counts, newest_id, settle
from sbatch_router.core.snapshot import Assoc, Job, Scope, Snapshot
from sbatch_router.core.tres import UNKNOWN, Limit

TRES = {"cpu": 1, "mem": 100, "node": 1, "billing": 1}
#: When the asking begins: promises whose sbatch has ended by then are dead.
BEGIN = 10


class Life(NamedTuple):
    """When one job's sbatch was promised, when its job arrived, and so on; None: not yet."""

    promised: int
    arrived: int
    exited: int
    started: Optional[int]
    ended: Optional[int]

    def state(self, at: int) -> str:
        if at < self.arrived:
            return "absent"
        if self.ended is not None and at >= self.ended:
            return "ended"
        return "running" if self.started is not None and at >= self.started else "pending"


@st.composite
def lives(draw) -> Life:
    promised = draw(st.integers(0, BEGIN - 1))
    arrived = draw(st.integers(promised, BEGIN + 6))
    exited = draw(st.integers(arrived, BEGIN + 8))
    started = draw(st.one_of(st.none(), st.integers(arrived, BEGIN + 8)))
    ended = None if started is None else draw(st.one_of(st.none(), st.integers(started, BEGIN + 9)))
    return Life(promised, arrived, exited, started, ended)


def promise(number: int, tasks: int = 1) -> Promise:
    return Promise(0.0, number, "lab", "lab", "main", TRES, tasks, tasks, 60)


def row(number: int, state: str, tasks: int = 1) -> Job:
    return Job(str(number), "lab", "lab", "main", state, "", TRES, tasks)


def snapshot(jobs, submitted: int, running: int) -> Snapshot:
    used = {"GrpSubmitJobs": Limit(None, submitted), "GrpJobs": Limit(None, running)}
    assocs = {("lab", "alice", ""): Assoc("lab", "alice", "", "lab", Scope({}, used))}
    return Snapshot(0.0, "scontrol", "alice", {}, assocs, {}, UNKNOWN, jobs)


def look(every: list[Life], use_at: int, list_at: int) -> Snapshot:
    """What assoc_mgr at one moment and squeue at another show; ids in order of arrival."""
    order = sorted(range(len(every)), key=lambda i: every[i].arrived)
    names = {"pending": "PENDING", "running": "RUNNING"}
    rows = tuple(
        row(order.index(i) + 1, names[life.state(list_at)])
        for i, life in enumerate(every)
        if life.state(list_at) in names
    )
    then = [life.state(use_at) for life in every]
    running = then.count("running")
    return snapshot(rows, running + then.count("pending"), running)


def ledger(every: list[Life]) -> tuple[tuple[Promise, ...], tuple[Promise, ...]]:
    alive = tuple(promise(i) for i, life in enumerate(every) if life.exited >= BEGIN)
    dead = tuple(promise(i) for i, life in enumerate(every) if life.exited < BEGIN)
    return alive, dead


def demand(running: int, jobs, open_) -> int:
    """How many slots the decision sees as taken."""
    waiting = sum(job.tasks for job in jobs if job.state == "PENDING")
    return running + waiting + sum(p.tasks for p in open_)


@given(st.lists(lives(), max_size=8), st.integers(0, 4), st.integers(0, 4))
def test_no_job_is_lost_between_the_two_looks(every, use_after, list_after):
    use_at, list_at = BEGIN + use_after, BEGIN + list_after
    seen = look(every, use_at, list_at)
    alive, dead = ledger(every)
    found = settle(seen, alive, dead, 0)
    last = max(use_at, list_at)
    there = sum(life.state(last) != "ended" for life in every)
    running = counts(seen)["lab"][1]
    assert demand(running, found.jobs, found.open) >= there


@given(st.lists(lives(), max_size=8))
def test_each_job_counts_once_when_nothing_moves(every):
    still = [
        life for life in every if life.arrived < BEGIN and (life.started or 0) < BEGIN
        and (life.ended or 0) < BEGIN
    ]  # fmt: skip
    seen = look(still, BEGIN, BEGIN)
    alive, dead = ledger(still)
    ended = [i for i, life in enumerate(still) if life.state(BEGIN) == "ended"]
    dead = tuple(p for p in dead if p.pid not in ended)
    alive = tuple(p for p in alive if p.pid not in ended)
    found = settle(seen, alive, dead, 0)
    there = sum(life.state(BEGIN) != "ended" for life in still)
    assert demand(counts(seen)["lab"][1], found.jobs, found.open) == there
    assert found.open == ()


@given(st.lists(lives(), max_size=8), st.integers(0, 4))
def test_no_job_is_lost_when_old_rows_are_carried(every, use_after):
    listed = [life._replace(exited=min(life.exited, 3)) for life in every if life.arrived < 4]
    later = [life for life in every if life.arrived >= 4]
    use_at = BEGIN + use_after
    before = look(listed, 4, 4)
    everybody = [*listed, *later]
    alive, dead = ledger(later)
    then = [life.state(use_at) for life in everybody]
    running = then.count("running")
    seen = snapshot(UNKNOWN, running + then.count("pending"), running)
    found = carry(seen, before.jobs, alive, dead)
    there = sum(state != "ended" for state in then)
    assert demand(running, found.jobs, found.open) >= there


def test_a_job_that_started_after_the_use_was_counted_still_waits_for_its_slot():
    seen = snapshot((row(1, "RUNNING"), row(2, "RUNNING")), 1, 1)
    found = settle(seen, (), (promise(1), promise(2)), 0)
    assert [(j.id, j.state) for j in found.jobs] == [
        ("1", "RUNNING"),
        ("2", "RUNNING"),
        ("2", "PENDING"),
    ]


def test_a_job_that_ended_after_the_use_was_counted_still_holds_it():
    rows = (row(1, "COMPLETING"), row(2, "COMPLETING"), row(3, "RUNNING"))
    held = settle(snapshot(rows, 2, 2), (), (), NO_ID)
    assert [job.state for job in held.jobs] == ["COMPLETING", "RUNNING", "RUNNING"]
    assert settle(snapshot(rows, 1, 1), (), (), NO_ID).jobs == rows


def test_a_promise_whose_job_is_listed_already_is_closed():
    seen = snapshot((row(7, "PENDING"),), 1, 0)
    assert settle(seen, (promise(3),), (), 6).open == ()


def test_a_listed_job_belongs_to_an_ended_sbatch_first():
    seen = snapshot((row(7, "PENDING"),), 1, 0)
    assert settle(seen, (promise(3),), (promise(2),), 6).open == (promise(3),)


def test_without_an_earlier_snapshot_no_row_is_new():
    seen = snapshot((row(7, "PENDING"),), 1, 0)
    assert settle(seen, (promise(3),), (), NO_ID).open == (promise(3),)


def test_carried_rows_start_oldest_first():
    seen = snapshot(UNKNOWN, 3, 1)
    found = carry(seen, (row(1, "PENDING"), row(2, "PENDING")), (), (promise(9),))
    assert [(j.id, j.state) for j in found.jobs] == [
        ("1", "RUNNING"),
        ("2", "PENDING"),
        ("0", "PENDING"),
    ]


def test_carried_array_rows_are_split():
    seen = snapshot(UNKNOWN, 10, 4)
    found = carry(seen, (row(5, "PENDING", 10),), (), ())
    assert sum(j.state == "RUNNING" for j in found.jobs) == 4
    assert [j.tasks for j in found.jobs if j.state == "PENDING"] == [6]


def test_a_surplus_that_slurmctld_counts_closes_live_promises():
    seen = snapshot(UNKNOWN, 2, 0)
    found = carry(seen, (row(1, "PENDING"),), (promise(8), promise(9)), ())
    assert found.open == (promise(9),)
    assert len(found.jobs) == 2


@pytest.mark.parametrize("missing", ["GrpJobs", "GrpSubmitJobs"])
def test_an_unknown_count_changes_nothing(missing):
    seen = snapshot((row(1, "RUNNING"),), 0, 0)
    used = dict(seen.assocs["lab", "alice", ""].limits.counts)
    used[missing] = Limit(None, UNKNOWN)
    assoc = seen.assocs["lab", "alice", ""]._replace(limits=Scope({}, used))
    seen = seen._replace(assocs={("lab", "alice", ""): assoc})
    assert counts(seen) == {}
    found = settle(seen, (promise(1),), (), NO_ID)
    assert found.jobs == (row(1, "RUNNING"),)
    assert found.open == (promise(1),)


def test_the_newest_id_of_arrays_and_nothing():
    assert newest_id((row(3, "RUNNING"), row(12, "PENDING")._replace(id="12_[1-3]"))) == 12
    assert newest_id(()) == 0
