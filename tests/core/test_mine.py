"""My own use: what counts as running, as waiting, and not at all; B26, B64."""

from __future__ import annotations

import pytest
from corebuild import World, account, job, promise, qos

from sbatch_router.core.mine import NOT_COMPETING, Mine
from sbatch_router.core.tres import UNKNOWN

ONE = {"cpu": 2, "mem": 100, "node": 1, "billing": 2}


def usage(world, kind="qos", name="q"):
    return Mine(world.snapshot(), world.ledger).usage(kind, name)


def test_running_pending_and_promised_are_counted_apart():
    world = World(qos("q"))
    world.jobs = (job("1", ONE), job("2", ONE, "PENDING", minutes=30), job("3", ONE, "SUSPENDED"))
    world.ledger = (promise({"cpu": 5}, tasks=2),)
    found = usage(world)
    assert (found.running_jobs, found.running["cpu"]) == (2, 4)
    assert (found.waiting_jobs, found.waiting["cpu"]) == (3, 2 + 10)
    assert found.waiting_minutes["cpu"] == 2 * 30 + 10 * 60
    assert found.running_minutes["cpu"] == 4 * 60
    assert found.promised_tasks == 2


@pytest.mark.parametrize("reason", sorted(NOT_COMPETING))
def test_what_cannot_start_by_itself_takes_no_room(reason):
    world = World(qos("q"))
    world.jobs = (job("1", ONE, "PENDING", reason=reason),)
    assert usage(world).waiting_jobs == 0


def test_a_pending_job_larger_than_its_pool_takes_no_room():
    world = World(qos("q", GrpTRES={"cpu": (4, 0)}))
    world.jobs = (job("1", {"cpu": 5}, "PENDING", reason="QOSGrpCpuLimit"),)
    assert world.judge("-c4").verdict == "fits"
    world.jobs = (job("1", {"cpu": 4}, "PENDING", reason="QOSGrpCpuLimit"),)
    assert world.judge("-c4").verdict == "waits_mine"


def test_scopes():
    world = World(qos("q"), qos("r"))
    world.add(account("dept"))
    world.add(account("a", "dept"))
    world.change(qos="p")
    world.jobs = (job("1", ONE, where="a"), job("2", ONE, where="b"), job("3", ONE, on="r"))
    assert usage(world).running_jobs == 2
    assert usage(world, name="p").running_jobs == 3
    assert usage(world, "account", "a").running_jobs == 2
    assert usage(world, "account", "dept").running_jobs == 2
    assert usage(world, "account", "root").running_jobs == 3
    assert usage(world, "account", "b/alice").running_jobs == 1
    assert usage(world, "qos-account", "q/a").running_jobs == 1


def test_a_job_for_several_partitions_counts_in_the_qos_of_each():
    world = World(qos("q"))
    world.change(qos="p")
    world.jobs = (job("1", ONE, "PENDING")._replace(partition="other,main"),)
    assert usage(world, name="p").waiting_jobs == 1


@pytest.mark.parametrize(
    ("tasks", "at_once", "running", "waiting"),
    [(10, None, 0, 10), (10, 2, 0, 2), (8, 2, 2, 0), (9, 2, 1, 1), (1, 4, 0, 1)],
)
def test_B64_an_array_row_stands_for_its_tasks(tasks, at_once, running, waiting):
    world = World(qos("q"))
    row = job("7_[1-9]", ONE, "PENDING", tasks=tasks, at_once=at_once)
    world.jobs = (row, *(job(f"7_{i}", ONE) for i in range(running)))
    found = usage(world)
    assert found.waiting_jobs == waiting
    assert found.waiting.get("cpu", 0) == waiting * 2
    assert found.running_jobs == running


def test_a_time_limit_that_is_not_known_counts_as_none():
    world = World(qos("q"))
    world.jobs = (job("1", {"cpu": 1}, "PENDING", minutes=UNKNOWN),)
    assert usage(world).waiting_minutes["cpu"] == 0xFFFFFFFF


def test_jobs_that_are_not_known():
    world = World(qos("q", GrpTRES={"cpu": (4, 4)}))
    world.jobs = UNKNOWN
    found = usage(world)
    assert found.running is UNKNOWN
    assert found.running_jobs is UNKNOWN
    # Whose they are is not known: others' then, as the cautious reading.
    assert world.judge("-c1").verdict == "waits_others"


def test_B26_typed_and_untyped_rows_are_not_added_up():
    world = World(qos("q", GrpTRES={"gres/gpu": (3, 2)}))
    world.jobs = (job("1", {"cpu": 1, "gres/gpu": 2, "gres/gpu:a100": 2}),)
    assert usage(world).running == {"cpu": 1, "gres/gpu": 2, "gres/gpu:a100": 2}
    check = next(c for c in world.judge("--gres=gpu:1").checks if c.tres == "gres/gpu")
    assert (check.used, check.mine) == (2, 2)


def test_only_mine_in_the_way_or_others_too():
    world = World(qos("q", GrpTRES={"cpu": (8, 8)}))
    world.jobs = (job("1", {"cpu": 4}),)
    assert world.judge("-c4").verdict == "waits_mine"
    assert world.judge("-c5").verdict == "waits_others"
    assert world.judge("-c9").verdict == "never"


def test_what_is_completing_holds_nothing_any_more():
    """slurmctld gives it back when the job ends, however long its epilog takes."""
    world = World(qos("q", GrpTRES={"cpu": (8, 8)}))
    world.jobs = (job("1", {"cpu": 4}, "COMPLETING"),)
    found = world.judge("-c4")
    assert (found.verdict, found.checks[0].mine) == ("waits_others", 0)
    world.jobs = (job("1", {"cpu": 4}),)
    assert world.judge("-c4").verdict == "waits_mine"


def test_promises_are_counted_in_parents_and_per_account():
    world = World(qos("q", MaxTRESPA={"cpu": (4, 0)}))
    world.add(account("a", GrpTRES={"mem": (500, 0)}))
    world.ledger = (promise({"cpu": 4, "mem": 100}),)
    assert world.judge("-c1").verdict == "waits_mine"
    assert world.judge("-c1", where="b").verdict == "fits"
    world.ledger = (promise({"cpu": 1, "mem": 450}),)
    assert world.judge("-c1", "--mem=100M").verdict == "waits_mine"
