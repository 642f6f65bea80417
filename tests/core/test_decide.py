"""The choice: what is passed on, kept, routed, queued and refused, and why."""

from __future__ import annotations

import pytest
from corebuild import World, account, job, qos

from sbatch_router.core import policy as policies
from sbatch_router.core.decide import decide
from sbatch_router.core.policy import Account, Blocked, Policy, Rule, WhenFull
from sbatch_router.core.report import refusal
from sbatch_router.core.tres import UNKNOWN
from sbatch_router.slurm.request import read_request

TWO = Policy((Account("a", ("q",)), Account("b", ("r",))))


def lab(first=None, second=None):
    """Two pools: a on q, b on r."""
    return World(qos("q", **(first or {})), qos("r", **(second or {})))


FULL = {"GrpTRES": {"cpu": (4, 4)}}


def where(decision):
    return decision.action, decision.account, decision.qos


def test_the_first_that_fits_when_all_is_equal():
    assert where(lab().decide("-c1", policy=TWO)) == ("route", "a", "q")


def test_the_other_when_the_first_is_full():
    found = lab(FULL).decide("-c1", policy=TWO)
    assert where(found) == ("route", "b", "r")
    assert found.changed is True


def test_more_room_wins_over_policy_order():
    world = lab({"GrpTRES": {"mem": (1000, 500)}}, {"GrpTRES": {"mem": (1000, 100)}})
    assert where(world.decide("-c1", policy=TWO)) == ("route", "b", "r")
    listed = TWO._replace(rules=(Rule("one", order=("listed",)),))
    assert where(world.decide("-c1", policy=listed)) == ("route", "a", "q")
    fit = TWO._replace(rules=(Rule("one", order=("fit",)),))
    assert where(world.decide("-c1", policy=fit)) == ("route", "a", "q")


def test_queue_behind_my_own_jobs_rather_than_others():
    world = lab(FULL, FULL)
    world.jobs = (job("1", {"cpu": 4}, where="b", on="r"),)
    found = world.decide("-c1", policy=TWO)
    assert where(found) == ("queue", "b", "r")
    refusing = TWO._replace(own_backlog="refuse")
    found = world.decide("-c1", policy=refusing)
    assert (found.action, found.exit_code) == ("refuse", 75)


@pytest.mark.parametrize(
    ("full", "action", "code", "wait"),
    [
        (WhenFull("refuse"), "refuse", 75, 0),
        (WhenFull("queue"), "queue", 0, 0),
        (WhenFull("wait", 600), "refuse", 75, 600),
    ],
)
def test_when_others_fill_everything(full, action, code, wait):
    found = lab(FULL, FULL).decide("-c1", policy=TWO._replace(when_full=full))
    assert (found.action, found.exit_code, found.wait_seconds) == (action, code, wait)


def test_77_when_no_account_may_ever_run_it():
    small = {"GrpTRES": {"cpu": 4}}
    found = lab(small, small).decide("-c5", policy=TWO)
    assert (found.action, found.exit_code) == ("refuse", 77)
    # One that could later makes it 75.
    found = lab(small, {"GrpTRES": {"cpu": (8, 8)}}).decide("-c5", policy=TWO)
    assert found.exit_code == 75


def test_an_array_goes_where_most_of_it_can_start():
    world = lab({"GrpTRES": {"cpu": (4, 2)}}, {"GrpTRES": {"cpu": (4, 1)}})
    found = world.decide("-c1", "--array=1-4", policy=TWO)
    assert where(found) == ("queue", "b", "r")
    assert [c.starts for c in found.candidates] == [2, 3]
    assert where(world.decide("-c1", "--array=1-4%2", policy=TWO))[0] == "route"


def test_submit_limits_count_whatever_runs_at_once():
    world = lab({"MaxSubmitJobsPU": (5, 2)})
    assert where(world.decide("--array=1-4%1", policy=TWO)) == ("route", "b", "r")
    assert where(world.decide("--array=1-3%1", policy=TWO)) == ("route", "a", "q")


# -- what the user asked for ----------------------------------------------------------------------


@pytest.mark.parametrize("value", ["elsewhere", "(null)", "null", "None", "$proj", ""])
def test_B53_another_account_is_passed_on(value):
    found = lab().decide(f"--account={value}", policy=TWO)
    assert (found.action, found.candidates) == ("pass", ())


def test_a_qos_that_no_account_of_the_policy_has_is_passed_on():
    found = lab().decide("--qos=elsewhere", policy=TWO)
    assert (found.action, found.why) == ("pass", "qos elsewhere is not in the policy")
    assert where(lab().decide("--qos=r", policy=TWO)) == ("route", "b", "r")


def test_an_account_on_the_command_line_is_kept_with_its_verdicts():
    found = lab(FULL).decide("--account=a", "-c1", policy=TWO)
    assert where(found) == ("keep", "a", "")
    assert [c.verdict for c in found.candidates] == ["waits_others", "fits"]


@pytest.mark.parametrize("mode", ["prefer", "override"])
def test_prefer_takes_the_named_account_while_it_fits(mode):
    policy = TWO._replace(explicit_account={"cli": mode, "env": mode, "script": mode})
    world = lab({"GrpTRES": {"mem": (1000, 0)}}, {"GrpTRES": {"mem": (1000, 500)}})
    found = world.decide("--account=b", "-c1", policy=policy)
    assert where(found) == ("route", *(("b", "r") if mode == "prefer" else ("a", "q")))
    world = lab({}, FULL)
    assert where(world.decide("--account=b", "-c1", policy=policy)) == ("route", "a", "q")


def test_B46_the_environment_is_above_the_script():
    script = b"#!/bin/sh\n#SBATCH -A a\n#SBATCH --qos=q\n"
    env = {"SBATCH_ACCOUNT": "b", "SLURM_ACCOUNT": "c", "SLURM_JOB_ACCOUNT": "c"}
    request = read_request(["x.sh"], env, script)
    assert tuple(request.given("account")) == ("b", "env")
    assert tuple(request.given("qos")) == ("q", "script")
    found = decide(request, lab().snapshot(), (), TWO, 0.0)
    assert found.action == "pass" or found.account in ("a", "b")


def test_a_blocked_account_is_kept_when_named_with_a_note():
    policy = Policy((Account("a", ("q",)),), (Blocked("b", "full since March"),))
    found = lab().decide("--account=b", policy=policy)
    assert found.action == "keep"
    assert "full since March" in found.notes[0]


def test_blocked_and_only_are_said():
    policy = Policy(
        (Account("a", ("q",), {"gpus": policies.Test("==", (0,), "0")}), Account("b", ("r",))),
        (Blocked("b", "throttled"),),
    )
    found = lab().decide("--gres=gpu:1", policy=policy)
    assert [c.verdict for c in found.candidates] == ["blocked", "blocked"]
    assert (found.action, found.exit_code) == ("refuse", 77)


# -- what is not ours -----------------------------------------------------------------------------


def test_without_enforcement_nothing_is_judged():
    world = lab(FULL)
    world.config = world.config._replace(enforce=frozenset(("associations",)))
    found = world.decide("-c1", policy=TWO)
    assert found.action == "pass"
    assert "AccountingStorageEnforce" in found.why


def test_what_is_not_known_is_passed_on_not_refused():
    world = World(qos("q", GrpTRES={"cpu": 4})._replace(flags=UNKNOWN), qos("r", **FULL))
    found = world.decide("-c1", policy=TWO)
    assert (found.action, found.candidates[0].verdict) == ("pass", "unknown")
    cautious = TWO._replace(when_slurm_unreachable="refuse")
    # Slurm answered; that something cannot be judged is no silence of Slurm's.
    assert world.decide("-c1", policy=cautious).action == "pass"
    request = read_request(["-c1", "--wrap", "x"], {}, None)
    silent = world.snapshot()._replace(troubles=("sacctmgr did not answer",))
    assert decide(request, silent, (), cautious, 0.0).exit_code == 75


def test_a_reservation_decides_by_itself_who_may_run_there():
    found = lab().decide("-c1", "--reservation=r1", policy=TWO)
    assert (found.action, found.account) == ("pass", "")
    assert found.why == "reservation r1 decides who may run there"


@pytest.mark.parametrize("option", ["--begin=now+2days", "--dependency=afterok:1"])
def test_a_job_for_later_is_not_refused_because_it_is_full_now(option):
    world = World(qos("q", **FULL), qos("r", **FULL))
    assert world.decide("-c1", policy=TWO).exit_code == 75
    found = world.decide("-c1", option, policy=TWO)
    assert (found.action, found.exit_code) == ("queue", 0)
    assert found.why == f"not meant to start now ({option.partition('=')[0]})"


def test_a_policy_that_only_blocks_moves_and_refuses_nobody():
    policy = TWO._replace(accounts=(), blocked=(Blocked("a", "full since March"),))
    found = lab().decide("-c1", policy=policy)
    assert (found.action, found.exit_code) == ("pass", 0)


@pytest.mark.parametrize("where_", ["qos", "assocs", "partitions", "config"])
def test_B01_no_answer_is_no_empty_pool(where_):
    world = lab()
    snapshot = world.snapshot()._replace(**{where_: UNKNOWN})
    request = read_request(["-c1", "--wrap", "x"], {}, None)
    found = decide(request, snapshot, (), TWO, 0.0)
    assert {c.verdict for c in found.candidates} == {"unknown"}
    assert found.action == "pass"


def test_no_association_and_no_such_qos_are_refused_by_sbatch():
    world = lab()
    del world.assocs["b", "alice", ""]
    found = world.judge(where="b", on="r")
    assert (found.verdict, found.refused) == ("not_allowed", True)
    world.assocs["a", "alice", ""] = world.assocs["a", "alice", ""]._replace(qos=("q",))
    found = world.judge(where="a", on="r")
    assert (found.verdict, found.refused) == ("not_allowed", True)
    # Without `qos` in AccountingStorageEnforce every QOS will do.
    world.config = world.config._replace(enforce=frozenset(("limits",)))
    assert world.judge(where="a", on="r").verdict == "fits"


# -- several partitions ---------------------------------------------------------------------------


def test_several_partitions_the_best_counts_unless_one_refuses():
    world = lab()
    snapshot = world.snapshot()
    main = world.partition
    other = main._replace(name="other", default=False, qos="p", nodes="n1")
    limited = qos("p", GrpTRES={"cpu": (4, 4)})
    snapshot = snapshot._replace(
        partitions={"main": main, "other": other}, qos={**world.qos, "p": limited}
    )
    request = read_request(["-c1", "-pother,main", "--wrap", "x"], {}, None)
    found = decide(request, snapshot, (), TWO, 0.0)
    assert [c.verdict for c in found.candidates] == ["fits", "fits"]
    assert found.partition == "other,main"
    # A submit limit of any of them refuses the job (acct_policy_validate goes through all).
    refusing = qos("p", GrpSubmitJobs=(1, 1))
    snapshot = snapshot._replace(qos={**world.qos, "p": refusing})
    found = decide(request, snapshot, (), TWO, 0.0)
    assert {(c.verdict, c.refused) for c in found.candidates} == {("not_allowed", True)}


def test_an_association_for_one_partition_comes_first():
    world = lab()
    own = account("a", user="alice", GrpTRES={"cpu": 1})._replace(partition="main")
    world.assocs["a", "alice", "main"] = own._replace(qos=("q",), default_qos="q")
    assert world.judge("-c2").reason == "AssocGrpCpuLimit"


def test_headroom_is_the_least_and_null_where_nothing_limits():
    world = World(qos("q", GrpTRES={"cpu": (10, 4), "mem": (1000, 0)}))
    world.add(account("a", GrpTRES={"cpu": (5, 0)}))
    world.qos["q"].limits.tres["GrpTRES"].pop("mem")
    found = world.judge("-c1", "--gres=gpu:1")
    assert found.headroom["cpu"] == 6  # the QOS hides the account's
    assert found.headroom["mem"] is None
    assert found.headroom["gres/gpu"] is None


@pytest.mark.parametrize("option", ["--help", "--usage", "--version", "--test-only"])
def test_what_submits_nothing_is_passed_on(option):
    world = World(qos("a", GrpTRES={"cpu": (4, 4)}))
    found = world.decide(option)
    assert (found.action, found.why) == ("pass", f"{option} submits nothing")


def test_a_refusal_where_squeue_did_not_answer():
    """What is mine of a full pool is then not known, which is no number and no truth."""
    world = World(qos("a", GrpTRES={"cpu": (4, 4)}))
    world.jobs = UNKNOWN
    found = world.decide("-c2")
    assert found.exit_code == 75
    request = read_request(["-c2", "--wrap", "x"], {}, None)
    assert "\n  a/a  full: cpu limit 4, used 4, asked 2 [QOSGrpCpuLimit]\n" in refusal(
        found, request, {}
    )


def test_a_refusal_where_my_own_jobs_are_in_the_way_says_so_in_words():
    world = lab(FULL, FULL)
    world.jobs = (job("1", {"cpu": 4}, where="b", on="r"),)
    found = world.decide("-c1", policy=TWO._replace(own_backlog="refuse"))
    request = read_request(["-c1", "--wrap", "x"], {}, None)
    text = refusal(found, request, {})
    assert "\n  b/r  busy with your own jobs: cpu limit 4, used 4 (4 yours), asked 1 [" in text
