"""Every limit kind at the value level: verdict, reason, what hides what, what refuses."""

from __future__ import annotations

import pytest
from corebuild import World, account, job, limit, promise, qos, scope

from sbatch_router.core.snapshot import Scope
from sbatch_router.core.tres import UNKNOWN, Limit

SMALL = ("-c2", "--mem=100M", "--time=30")
GPU = ("-c2", "--mem=100M", "--time=30", "--gres=gpu:a100:2")


# -- one limit at a time ------------------------------------------------------------------------

#: Limit kind, TRES and value as (limit, used), request, verdict, reason: on the QOS.
QOS_CASES = [
    ("GrpTRES", {"cpu": (4, 3)}, SMALL, "waits_others", "QOSGrpCpuLimit"),
    ("GrpTRES", {"cpu": (4, 2)}, SMALL, "fits", ""),
    ("GrpTRES", {"mem": (100, 1)}, SMALL, "waits_others", "QOSGrpMemLimit"),
    ("GrpTRES", {"node": (0, 0)}, SMALL, "never", "QOSGrpNodeLimit"),
    ("GrpTRES", {"node": (1, 1)}, SMALL, "fits", ""),
    ("GrpTRES", {"billing": (1, 0)}, SMALL, "never", "QOSGrpBilling"),
    ("GrpTRES", {"gres/gpu": (3, 2)}, GPU, "waits_others", "QOSGrpGRES"),
    ("GrpTRES", {"gres/gpu:a100": (3, 2)}, GPU, "waits_others", "QOSGrpGRES"),
    ("GrpTRES", {"license/lic": (1, 1)}, ("-L", "lic:1"), "waits_others", "QOSGrpLicense"),
    ("GrpTRESMins", {"cpu": (0, 0)}, SMALL, "never", "QOSGrpCPUMinutesLimit"),
    ("GrpTRESMins", {"cpu": (9, 9)}, SMALL, "waits_others", "QOSGrpCPUMinutesLimit"),
    ("GrpTRESMins", {"mem": (9, 9)}, SMALL, "waits_others", "QOSGrpMemoryMinutes"),
    ("GrpTRESMins", {"cpu": (9, 8)}, SMALL, "fits", ""),
    ("GrpTRESRunMins", {"cpu": (60, 1)}, SMALL, "waits_others", "QOSGrpCPURunMinutesLimit"),
    ("GrpTRESRunMins", {"mem": (2999, 0)}, SMALL, "never", "QOSGrpMemoryRunMinutes"),
    ("GrpTRESRunMins", {"cpu": (60, 0)}, SMALL, "fits", ""),
    ("MaxTRESMinsPJ", {"cpu": 59}, SMALL, "never", "QOSMaxCpuMinutesPerJobLimit"),
    ("MaxTRESMinsPJ", {"node": 29}, SMALL, "never", "QOSMaxNodeMinutesPerJob"),
    ("MaxTRESPJ", {"cpu": 1}, SMALL, "never", "QOSMaxCpuPerJobLimit"),
    ("MaxTRESPJ", {"mem": 99}, SMALL, "never", "QOSMaxMemoryPerJob"),
    ("MaxTRESPN", {"cpu": 1}, SMALL, "never", "QOSMaxCpuPerNode"),
    ("MaxTRESPN", {"gres/gpu": 1}, GPU, "never", "QOSMaxGRESPerNode"),
    ("MinTRESPJ", {"cpu": 3}, SMALL, "never", "QOSMinCpuNotSatisfied"),
    ("MinTRESPJ", {"gres/gpu": 1}, SMALL, "never", "QOSMinGRES"),
    ("MinTRESPJ", {"gres/gpu": 1}, GPU, "fits", ""),
    ("MaxTRESPU", {"cpu": (4, 3)}, SMALL, "waits_mine", "QOSMaxCpuPerUserLimit"),
    ("MaxTRESPA", {"cpu": (4, 3)}, SMALL, "waits_others", "MaxCpuPerAccount"),
    ("MaxTRESPA", {"mem": (4, 3)}, SMALL, "never", "MaxMemoryPerAccount"),
    ("GrpJobs", (2, 2), SMALL, "waits_others", "QOSGrpJobsLimit"),
    ("GrpJobs", (0, 0), SMALL, "never", "QOSGrpJobsLimit"),
    ("GrpJobs", (2, 1), SMALL, "fits", ""),
    ("GrpWall", (30, 30), SMALL, "waits_others", "QOSGrpWallLimit"),
    ("GrpWall", (1, 0), SMALL, "fits", ""),
    ("MaxWallPJ", 29, SMALL, "never", "QOSMaxWallDurationPerJobLimit"),
    ("MaxWallPJ", 30, SMALL, "fits", ""),
    ("MaxJobsPU", (1, 1), SMALL, "waits_mine", "QOSMaxJobsPerUserLimit"),
    ("MaxJobsPA", (1, 1), SMALL, "waits_others", "MaxJobsPerAccount"),
]
ASSOC_CASES = [
    ("GrpTRES", {"cpu": (4, 3)}, SMALL, "waits_others", "AssocGrpCpuLimit"),
    ("GrpTRES", {"mem": (100, 1)}, SMALL, "waits_others", "AssocGrpMemLimit"),
    ("GrpTRES", {"gres/gpu": (3, 2)}, GPU, "waits_others", "AssocGrpGRES"),
    ("GrpTRES", {"node": 0}, SMALL, "never", "AssocGrpNodeLimit"),
    ("GrpTRESMins", {"mem": (9, 9)}, SMALL, "waits_others", "AssocGrpMemMinutes"),
    ("GrpTRESRunMins", {"mem": (3000, 1)}, SMALL, "waits_others", "AssocGrpMemRunMinutes"),
    ("GrpJobs", (1, 1), SMALL, "waits_others", "AssocGrpJobsLimit"),
    ("GrpWall", (1, 1), SMALL, "waits_others", "AssocGrpWallLimit"),
]
USER_CASES = [
    ("MaxTRESPJ", {"mem": 99}, SMALL, "never", "AssocMaxMemPerJob"),
    ("MaxTRESPJ", {"node": 0}, SMALL, "never", "AssocMaxNodePerJobLimit"),
    ("MaxTRESPN", {"cpu": 1}, SMALL, "never", "AssocMaxCpuPerNode"),
    ("MaxTRESPN", {"node": 0}, SMALL, "never", "AssocMaxUnknownPerNode"),
    ("MaxTRESMinsPJ", {"cpu": 59}, SMALL, "never", "AssocMaxCpuMinutesPerJobLimit"),
    ("MaxJobs", (1, 1), SMALL, "waits_others", "AssocMaxJobsLimit"),
    ("MaxWallPJ", 29, SMALL, "never", "AssocMaxWallDurationPerJobLimit"),
]


def _ids(cases):
    return [f"{kind}-{value}" for kind, value, *_ in cases]


@pytest.mark.parametrize(
    ("kind", "value", "options", "verdict", "reason"), QOS_CASES, ids=_ids(QOS_CASES)
)
@pytest.mark.parametrize("partition", [False, True], ids=["job qos", "partition qos"])
def test_one_limit_of_a_qos(kind, value, options, verdict, reason, partition):
    limited = qos("limited", **{kind: value})
    world = World(qos("q"), limited) if partition else World(limited, qos("q"))
    if partition:
        world.change(qos="limited")
    found = world.judge(*options)
    assert (found.verdict, found.reason, found.refused) == (verdict, reason, False)
    assert found.doubts == ()


@pytest.mark.parametrize(
    ("kind", "value", "options", "verdict", "reason"), ASSOC_CASES, ids=_ids(ASSOC_CASES)
)
@pytest.mark.parametrize("level", ["user", "account", "parent", "root"])
def test_one_group_limit_at_every_level_of_the_tree(kind, value, options, verdict, reason, level):
    world = World(qos("q"))
    where = {
        "user": account("a", user="alice", **{kind: value}),
        "account": account("a", "dept", **{kind: value}),
        "parent": account("dept", **{kind: value}),
        "root": account("root", "", **{kind: value}),
    }
    if level in ("account", "parent"):
        world.add(account("dept"))
        world.add(account("a", "dept"))
    world.add(where[level])
    found = world.judge(*options)
    assert (found.verdict, found.reason) == (verdict, reason)


@pytest.mark.parametrize(
    ("kind", "value", "options", "verdict", "reason"), USER_CASES, ids=_ids(USER_CASES)
)
def test_max_limits_bind_at_the_users_own_record_only(kind, value, options, verdict, reason):
    world = World(qos("q"))
    world.add(account("a", user="alice", **{kind: value}))
    found = world.judge(*options)
    assert (found.verdict, found.reason) == (verdict, reason)
    # The parents' have been handed down already, where they count.
    world.add(account("a", user="alice"))
    world.add(account("a", **{kind: value}))
    assert world.judge(*options).verdict == "fits"


@pytest.mark.parametrize(
    ("kind", "level", "reason"),
    [
        ("GrpSubmitJobs", "qos", "QOSGrpSubmitJobsLimit"),
        ("MaxSubmitJobsPU", "qos", "QOSMaxSubmitJobPerUserLimit"),
        ("MaxSubmitJobsPA", "qos", "MaxSubmitJobsPerAccount"),
        ("GrpSubmitJobs", "assoc", "AssocGrpSubmitJobsLimit"),
        ("MaxSubmitJobs", "assoc", "AssocMaxSubmitJobLimit"),
    ],
)
def test_submit_limits_refuse_whole_arrays(kind, level, reason):
    value = {kind: (5, 2)}
    world = World(qos("q", **value) if level == "qos" else qos("q"))
    if level == "assoc":
        world.add(account("a", user="alice", **value))
    assert world.judge("--array=1-3").verdict == "fits"
    found = world.judge("--array=1-4%1")
    assert (found.verdict, found.refused, found.reason) == ("not_allowed", True, "")
    assert f"[{reason}]" in found.why
    world.ledger = (promise({"cpu": 1}, tasks=2),)
    assert world.judge("--array=1-3").verdict == "not_allowed"
    assert world.judge().verdict == "fits"


# -- per release --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "verdict"), [((22, 5, 8), "fits"), ((23, 11), "fits"), ((24, 5), "never")]
)
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("MaxTRESRunMinsPU", "MaxCpuRunMinsPerUser"),
        ("MaxTRESRunMinsPA", "MaxCpuRunMinsPerAccount"),
    ],
)
def test_run_minutes_per_user_are_enforced_since_24_05(kind, reason, release, verdict):
    found = World(qos("q", **{kind: {"cpu": (59, 0)}}), release=release).judge(*SMALL)
    assert (found.verdict, found.reason) == (verdict, reason if verdict == "never" else "")


def test_run_minutes_per_user_that_a_release_does_not_print():
    limited = qos("q")
    row = scope(row=True)
    row = Scope({k: v for k, v in row.tres.items() if "RunMins" not in k}, row.counts)
    limited = limited._replace(users={"alice": row}, accounts={"a": row})
    assert World(limited).judge(*SMALL).verdict == "fits"
    assert World(limited, release=(24, 11)).judge(*SMALL).verdict == "fits"
    some = scope(row=True, MaxTRESRunMinsPU={"cpu": 100})
    found = World(limited._replace(defaults=some), release=(24, 11)).judge(*SMALL)
    assert (found.verdict, found.why) == (
        "unknown",
        "the use of MaxTRESRunMinsPU cpu of user alice in qos q is not known",
    )


# -- what hides what ----------------------------------------------------------------------------


def test_a_qos_hides_the_same_tres_and_kind_of_associations():
    world = World(qos("q", GrpTRES={"cpu": (100, 0)}))
    world.add(account("a", GrpTRES={"cpu": (1, 0), "mem": (1, 0)}))
    assert world.judge("-c2", "--mem=0.").verdict == "unknown"  # sbatch refuses such an amount
    assert world.judge("-c2", "--mem=1M").verdict == "fits"
    assert world.judge("-c2", "--mem=2M").reason == "AssocGrpMemLimit"


def test_a_limit_per_user_does_not_hide_the_trees_group_limit():
    world = World(qos("q", MaxTRESPU={"cpu": (100, 0)}))
    world.add(account("a", GrpTRES={"cpu": 1}))
    assert world.judge("-c2").reason == "AssocGrpCpuLimit"


@pytest.mark.parametrize(
    ("on_qos", "on_assoc", "hidden"),
    [
        ({"GrpJobs": 9}, {"GrpJobs": 0}, True),
        ({"MaxJobsPU": 9}, {"MaxJobs": 0}, True),
        ({"MaxJobsPA": 9}, {"MaxJobs": 0}, True),
        ({"MaxJobsPU": 9}, {"GrpJobs": 0}, False),
        ({"GrpWall": 900}, {"GrpWall": 0}, True),
        ({"MaxWallPJ": 900}, {"MaxWallPJ": 1}, True),
        ({"MaxSubmitJobsPA": 9}, {"MaxSubmitJobs": 0}, True),
        ({"MaxSubmitJobsPU": 9}, {"MaxSubmitJobs": 0}, True),
        ({"GrpSubmitJobs": 9}, {"GrpSubmitJobs": 0}, True),
        ({"GrpSubmitJobs": 9}, {"MaxSubmitJobs": 0}, False),
        ({"GrpTRESRunMins": {"cpu": 9000}}, {"GrpTRESRunMins": {"cpu": 0}}, True),
        ({"GrpTRESMins": {"cpu": 9000}}, {"GrpTRESMins": {"cpu": 0}}, True),
        ({"MaxTRESPJ": {"cpu": 90}}, {"MaxTRESPJ": {"cpu": 0}}, True),
        ({"MaxTRESPN": {"cpu": 90}}, {"MaxTRESPN": {"cpu": 0}}, True),
        ({"MaxTRESPN": {"cpu": 90}}, {"MaxTRESPJ": {"cpu": 0}}, False),
        ({"MaxTRESPN": {"cpu": 90}}, {"MaxTRESPN": {"mem": 0}}, False),
    ],
    ids=str,
)
def test_which_qos_limit_hides_which_of_the_users(on_qos, on_assoc, hidden):
    world = World(qos("q", **on_qos))
    world.add(account("a", user="alice", **on_assoc))
    assert (world.judge(*SMALL).verdict == "fits") is hidden


@pytest.mark.parametrize(
    ("flags", "reason"), [((), "QOSGrpCpuLimit"), (("OverPartQOS",), "")], ids=["plain", "over"]
)
def test_a_partition_qos_hides_the_jobs_unless_that_says_otherwise(flags, reason):
    world = World(qos("q", *flags, GrpTRES={"cpu": 9}), qos("p", GrpTRES={"cpu": 1}))
    world.change(qos="p")
    assert world.judge("-c2").reason == reason
    # The flag counts on the job's QOS alone.
    world = World(qos("q", GrpTRES={"cpu": 9}), qos("p", "OverPartQOS", GrpTRES={"cpu": 1}))
    world.change(qos="p")
    assert world.judge("-c2").reason == "QOSGrpCpuLimit"


def test_what_the_partition_qos_leaves_open_the_jobs_qos_limits():
    world = World(qos("q", GrpTRES={"mem": 1}), qos("p", GrpTRES={"cpu": 9}))
    world.change(qos="p")
    assert world.judge("-c2", "--mem=2M").reason == "QOSGrpMemLimit"


def test_one_qos_that_is_both_counts_once():
    world = World(qos("q", GrpTRES={"cpu": (4, 2)}))
    world.change(qos="q")
    found = world.judge("-c2")
    assert found.verdict == "fits"
    assert [c.kind for c in found.checks] == ["GrpTRES"]


# -- order --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ("PartitionTimeLimit", {"GrpJobs": 0}),
        ("QOSGrpJobsLimit", {"GrpWall": 0}),
        ("QOSGrpWallLimit", {"MaxJobsPA": 0}),
        ("MaxJobsPerAccount", {"MaxJobsPU": 0}),
        ("QOSMaxJobsPerUserLimit", {"MaxWallPJ": 1}),
        ("QOSMaxWallDurationPerJobLimit", {"GrpTRES": {"node": 0}}),
        ("QOSGrpNodeLimit", {"GrpTRESMins": {"cpu": 0}}),
        ("QOSGrpCPUMinutesLimit", {"GrpTRES": {"cpu": 0, "mem": 0}}),
        ("QOSGrpCpuLimit", {"GrpTRESRunMins": {"cpu": 0}}),
        ("QOSGrpCPURunMinutesLimit", {"MaxTRESMinsPJ": {"cpu": 0}}),
        ("QOSMaxCpuMinutesPerJobLimit", {"MaxTRESPJ": {"cpu": 0}}),
        ("QOSMaxCpuPerJobLimit", {"MaxTRESPN": {"cpu": 0}}),
        ("QOSMaxCpuPerNode", {"MinTRESPJ": {"cpu": 99}}),
        ("QOSMinCpuNotSatisfied", {"MaxTRESPA": {"cpu": 0}}),
        ("MaxCpuPerAccount", {"MaxTRESPU": {"cpu": 0}}),
        ("QOSMaxCpuPerUserLimit", {}),
    ],
)
def test_the_order_of_the_reasons(first, later):
    order = [
        {"GrpJobs": 0}, {"GrpWall": 0}, {"MaxJobsPA": 0}, {"MaxJobsPU": 0}, {"MaxWallPJ": 1},
        {"GrpTRES": {"node": 0}}, {"GrpTRESMins": {"cpu": 0}}, {"GrpTRES": {"cpu": 0, "mem": 0}},
        {"GrpTRESRunMins": {"cpu": 0}}, {"MaxTRESMinsPJ": {"cpu": 0}}, {"MaxTRESPJ": {"cpu": 0}},
        {"MaxTRESPN": {"cpu": 0}}, {"MinTRESPJ": {"cpu": 99}}, {"MaxTRESPA": {"cpu": 0}},
        {"MaxTRESPU": {"cpu": 0}}, {},
    ]  # fmt: skip
    at = order.index(later)
    limits: dict = {}
    for one in reversed(order[max(0, at - 1) :] if first != "PartitionTimeLimit" else order):
        for kind, value in one.items():
            limits[kind] = value
    world = World(qos("q", **limits))
    if first == "PartitionTimeLimit":
        world.change(max_time=1)
    assert world.judge(*SMALL).reason == first


def test_the_users_own_record_comes_before_its_parents():
    world = World(qos("q"))
    world.add(account("a", user="alice", GrpTRES={"gres/gpu": 0}))
    world.add(account("a", GrpTRES={"cpu": 0}))
    assert world.judge(*GPU).reason == "AssocGrpGRES"


# -- LimitFactor, safe, UsageFactor ---------------------------------------------------------------


def test_limit_factor_scales_association_limits_only():
    world = World(qos("q", factor=2.0, GrpTRES={"mem": 150}))
    world.add(account("a", user="alice", GrpTRES={"cpu": 3}, MaxTRESPJ={"gres/gpu": 1}))
    assert world.judge("-c6", "--mem=100M").verdict == "fits"
    assert world.judge("-c7", "--mem=100M").reason == "AssocGrpCpuLimit"
    assert world.judge("-c1", "--mem=200M").reason == "QOSGrpMemLimit"
    assert world.judge("-c1", "--mem=1M", "--gres=gpu:2").verdict == "fits"
    assert world.judge("-c1", "--mem=1M", "--gres=gpu:3").reason == "AssocMaxGRESPerJob"


def test_limit_factor_of_the_partition_qos_comes_first():
    world = World(qos("q", factor=9.0), qos("p", factor=2.0))
    world.change(qos="p")
    world.add(account("a", user="alice", GrpTRES={"cpu": 3}))
    assert world.judge("-c7").reason == "AssocGrpCpuLimit"
    assert world.judge("-c6").verdict == "fits"


def test_the_jobs_own_factor_is_not_seen_by_the_least_node_limit():
    # acct_policy_get_max_nodes() asks the first QOS for it twice.
    world = World(qos("q", factor=2.0), qos("p"))
    world.change(qos="p", total_nodes=4, nodes="n[1-4]")
    world.add(account("a", user="alice", GrpTRES={"node": 1}))
    assert world.judge("-N2").reason == "AssocGrpNodeLimit"
    world.change(qos="")
    assert world.judge("-N2").verdict == "fits"


def test_safe_wants_the_jobs_own_minutes_as_well():
    def judged(enforce, **limits):
        world = World(qos("q", **limits))
        world.config = world.config._replace(enforce=frozenset(enforce))
        return world.judge(*SMALL)

    plain, safe = ("limits", "qos"), ("limits", "qos", "safe")
    for limits, reason in (
        (
            {"GrpTRESMins": {"cpu": (69, 10)}, "GrpTRESRunMins": {"cpu": (None, 0)}},
            "QOSGrpCPUMinutesLimit",
        ),
        ({"GrpWall": (39, 10)}, "QOSGrpWallLimit"),
    ):
        assert judged(plain, **limits).verdict == "fits"
        assert judged(safe, **limits).reason == reason
    running = {"GrpTRESMins": {"cpu": (80, 10)}, "GrpTRESRunMins": {"cpu": (None, 11)}}
    assert judged(safe, **running).reason == "QOSGrpCPUMinutesLimit"
    running["GrpTRESRunMins"] = {"cpu": (None, 10)}
    assert judged(safe, **running).verdict == "fits"


def test_safe_minutes_are_a_pool():
    def judged(used, running, *options):
        limits = {"GrpTRESMins": {"cpu": (180, used)}}
        if running is not None:
            limits["GrpTRESRunMins"] = {"cpu": (None, running)}
        world = World(qos("q", **limits))
        world.config = world.config._replace(enforce=frozenset(("limits", "qos", "safe")))
        world.jobs = (job("1", {"cpu": 1}, minutes=60),)
        return world.judge(*SMALL, *options)

    # Two tasks at once take 60 each; the second finds the first's running.
    found = judged(0, 60, "--array=0-2")
    assert (found.verdict, found.starts, found.reason) == ("waits_mine", 2, "")
    assert judged(0, 60, "--array=0-1").verdict == "fits"
    assert judged(10, 120).verdict == "waits_mine"
    assert judged(10, 180).verdict == "waits_others"
    assert judged(0, None).verdict == "unknown"
    assert judged(130, None).verdict == "waits_others"


def test_safe_wall_limits_and_a_job_without_end():
    def judged(used):
        world = World(qos("q", GrpWall=(45, used)))
        world.config = world.config._replace(enforce=frozenset(("limits", "qos", "safe")))
        return world.judge("--time=0").verdict

    # 0 + 2^32 - 1 is too much; 1 + 2^32 - 1 is nothing to the main scheduler.
    assert [judged(used) for used in (0, 1, 45)] == ["never", "unknown", "unknown"]


def test_a_wall_limit_of_zero_holds_a_job_that_it_has_cut_to_zero():
    world = World(qos("q", GrpWall=0))
    world.change(default_time=None)
    world.config = world.config._replace(enforce=frozenset(("limits", "qos", "safe")))
    assert world.judge().reason == "QOSGrpWallLimit"


@pytest.mark.parametrize(
    ("factor", "flag", "verdict"),
    [(2.0, True, "never"), (2.0, False, "fits"), (0.5, True, "fits"), (None, True, "unknown")],
)
def test_usage_factor_counts_only_with_its_flag(factor, flag, verdict):
    limited = qos("q", *(["UsageFactorSafe"] if flag else []), GrpTRESRunMins={"cpu": 60})
    limited = limited._replace(usage_factor=UNKNOWN if factor is None else factor)
    assert World(limited).judge(*SMALL).verdict == verdict


def test_usage_factor_zero_clears_what_was_used():
    limited = qos("q", GrpTRESMins={"cpu": (9, 99)})._replace(usage_factor=0.0)
    assert World(limited).judge(*SMALL).verdict == "fits"


# -- the time limit -----------------------------------------------------------------------------


def test_time_comes_from_the_job_then_the_partition_then_the_wall_limits():
    def minutes(default, *options, **limits):
        world = World(qos("q", GrpTRESRunMins={"cpu": 10**12}, **limits))
        world.change(default_time=default)
        check = next(c for c in world.judge("-c1", *options).checks if "RunMins" in c.kind)
        return check.requested

    assert minutes(60) == 60
    assert minutes(60, "--time=5") == 5
    assert minutes(60, MaxWallPJ=7) == 60  # held by it, not cut to it
    assert minutes(None, MaxWallPJ=7, GrpWall=5) == 5
    assert minutes(None) == 0xFFFFFFFE
    assert minutes(None, "--time=0") == 0xFFFFFFFF


def test_the_first_wall_limit_of_the_tree_gives_the_time():
    world = World(qos("q", GrpTRESRunMins={"cpu": 10**12}))
    world.change(default_time=None)
    world.add(account("a", user="alice", MaxWallPJ=50, GrpWall=40))
    world.add(account("a", GrpWall=30))
    check = next(c for c in world.judge("-c1").checks if "RunMins" in c.kind)
    assert check.requested == 40


def test_without_any_time_the_backfill_scheduler_decides():
    world = World(qos("q", GrpTRESRunMins={"cpu": 600_000}))
    world.change(default_time=None)
    found = world.judge("-c1")
    assert found.verdict == "unknown"
    assert "backfill" in found.why
    world.qos["q"] = qos("q", GrpTRESRunMins={"cpu": 500_000})
    assert world.judge("-c1").verdict == "never"
    assert World(qos("q", GrpTRESRunMins={"cpu": 59})).judge("-c2", "--time=30",
           "--time-min=29").verdict == "unknown"  # fmt: skip


# -- DenyOnLimit ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"GrpTRES": {"cpu": (1, 0)}}, "QOSGrpCpuLimit"),
        ({"MaxTRESPU": {"cpu": 1}}, "QOSMaxCpuPerUserLimit"),
        ({"MaxTRESPA": {"cpu": 1}}, "MaxCpuPerAccount"),
        ({"MaxTRESPJ": {"mem": 1}}, "QOSMaxMemoryPerJob"),
        ({"MaxTRESPN": {"mem": 1}}, "QOSMaxMemoryPerNode"),
        ({"MinTRESPJ": {"gres/gpu": 1}}, "QOSMinGRES"),
        ({"MaxTRESMinsPJ": {"cpu": 59}}, "QOSMaxCpuMinutesPerJobLimit"),
        ({"GrpTRESMins": {"cpu": 59}}, "QOSGrpCPUMinutesLimit"),
        ({"GrpTRESRunMins": {"cpu": 59}}, "QOSGrpCPURunMinutesLimit"),
        ({"MaxWallPJ": 29}, "QOSMaxWallDurationPerJobLimit"),
        ({"GrpWall": 29}, "QOSGrpWallLimit"),
    ],
    ids=str,
)
def test_deny_on_limit_refuses_what_exceeds_a_limit_by_itself(limits, reason):
    found = World(qos("q", "DenyOnLimit", **limits)).judge(*SMALL)
    assert (found.verdict, found.refused, found.reason) == ("never", True, "")
    assert f"[{reason}]" in found.why


def test_deny_on_limit_lets_wait_what_only_does_not_fit_now():
    found = World(qos("q", "DenyOnLimit", GrpTRES={"cpu": (4, 3)})).judge("-c2")
    assert (found.verdict, found.refused, found.reason) == ("waits_others", False, "QOSGrpCpuLimit")


@pytest.mark.parametrize("flagged", ["job", "partition"])
def test_deny_on_limit_of_either_qos_covers_associations(flagged):
    names = {"job": ("DenyOnLimit",), "partition": ()}
    other = {"job": (), "partition": ("DenyOnLimit",)}
    world = World(qos("q", *names[flagged]), qos("p", *other[flagged]))
    world.change(qos="p")
    world.add(account("a", GrpTRES={"cpu": 1}))
    found = world.judge("-c2")
    assert (found.verdict, found.refused) == ("never", True)
    assert "[AssocGrpCpuLimit]" in found.why


@pytest.mark.parametrize(("release", "refused"), [((22, 5), False), ((25, 11), True)])
def test_a_group_limit_of_the_stronger_qos_hid_the_others_user_limit(release, refused):
    world = World(
        qos("q", "DenyOnLimit", MaxTRESPU={"cpu": 1}), qos("p", GrpTRES={"cpu": 9}),
        release=release,
    )  # fmt: skip
    world.change(qos="p")
    found = world.judge("-c2")
    assert (found.verdict, found.refused) == ("never", refused)


def test_how_many_minutes_count_as_known_at_submission():
    # DenyOnLimit cuts a job without time to what the minutes allow, and does not refuse it.
    world = World(qos("q", "DenyOnLimit", GrpTRESMins={"cpu": 100}, GrpTRESRunMins={"cpu": 10**12}))
    world.change(default_time=None)
    found = world.judge("-c2")
    assert (found.verdict, found.refused) == ("fits", False)
    check = next(c for c in found.checks if "RunMins" in c.kind)
    assert check.requested == 100


# -- nodes and GPUs -----------------------------------------------------------------------------


def test_the_least_node_limit_gives_the_reason():
    world = World(qos("q", MaxTRESPJ={"node": 2}, GrpTRES={"node": 1}))
    world.change(total_nodes=4, nodes="n[1-4]")
    assert world.judge("-N3").reason == "QOSGrpNodeLimit"
    world.qos["q"] = qos("q", MaxTRESPJ={"node": 1}, GrpTRES={"node": 1})
    assert world.judge("-N3").reason == "QOSMaxNodePerJobLimit"


def test_node_limits_on_several_nodes_are_not_guessed():
    world = World(qos("q", GrpTRES={"node": (2, 2)}))
    world.change(total_nodes=4, nodes="n[1-4]")
    found = world.judge("-N1")
    assert (found.verdict, found.reason) == ("unknown", "")
    assert "depends on which nodes are picked" in found.why
    # No doubt where it cannot matter.
    world.qos["q"] = qos("q", GrpTRES={"node": (3, 2)})
    assert world.judge("-N1").verdict == "fits"
    assert world.judge("-N4").verdict == "never"


def test_a_typed_gpu_limit_never_holds_an_untyped_request():
    world = World(qos("q", GrpTRES={"gres/gpu:a100": (1, 3)}))
    assert world.judge("--gres=gpu:1").verdict == "fits"
    assert world.judge("--gres=gpu:a100:1").reason == "QOSGrpGRES"
    assert world.judge("--gres=gpu:l4:1").verdict == "fits"


def test_what_is_settled_at_the_start_is_not_guessed():
    world = World(qos("q", GrpTRES={"cpu": (10, 0)}))
    world.change(threads_per_core=None)
    found = world.judge("-c4")
    assert (found.verdict, found.why) == (
        "unknown",
        "cpu is settled when the job starts, and qos q limits it",
    )
    # Whatever it comes to, more than ten is too much.
    assert world.judge("-c11").verdict == "never"


@pytest.mark.parametrize(
    ("limits", "options"),
    [
        ({"cpu": 16}, ("--exclusive",)),
        ({"mem": 20000}, ("--mem=0",)),
        ({"gres/gpu": 2}, ("--exclusive",)),
        ({"node": 1}, ("-n200",)),
    ],
    ids=str,
)
def test_the_first_of_unlike_nodes_may_be_the_largest_or_the_smallest(limits, options):
    """The job may go to another of them, so what it would hold on the first is not the least."""
    world = World(qos("q", GrpTRES={name: (limit, 0) for name, limit in limits.items()}))
    first = {"node_cpus": 128, "node_memory": 512000, "node_gres": {"gres/gpu": 8}}
    sums = {"cpu": 256, "mem": 1024000, "node": 2, "gres/gpu": 16}
    world.change(**first, total_nodes=2, total_cpus=256, tres=sums)
    assert world.judge(*options).verdict == "never"
    sums = {"cpu": 384, "mem": 528000, "node": 2, "gres/gpu": 8}
    world.change(**first, total_nodes=2, total_cpus=384, tres=sums)
    found = world.judge(*options)
    assert (found.verdict, found.reason) == ("unknown", "")
    (tres,) = limits
    assert f"{tres} is settled when the job starts" in found.why


def test_an_exclusive_job_may_get_gpus_that_it_did_not_ask_for():
    world = World(qos("q", GrpTRES={"gres/gpu": (2, 0)}))
    world.change(total_nodes=2, total_cpus=2000, tres={"gres/gpu": 8}, node_gres={})
    assert world.judge("--exclusive").verdict == "unknown"
    assert world.judge("-c1").verdict == "fits"


# -- partition ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "options", "flag", "reason"),
    [
        ({"max_time": 29}, SMALL, "PartitionTimeLimit", "PartitionTimeLimit"),
        ({"max_nodes": 1}, ("-N2",), "PartitionMaxNodes", "PartitionNodeLimit"),
        ({"total_cpus": 1}, SMALL, "", "PartitionConfig"),
        ({"total_nodes": 1}, ("-N2",), "", "PartitionNodeLimit"),
    ],
    ids=lambda value: str(value),
)
def test_what_the_partition_allows(change, options, flag, reason):
    world = World(qos("q"))
    world.change(total_nodes=4, nodes="n[1-4]")
    world.change(**change)
    found = world.judge(*options)
    assert (found.verdict, found.reason, found.refused) == ("never", reason, False)
    if flag:
        world.qos["q"] = qos("q", flag)
        assert world.judge(*options).verdict == "fits"
        world.qos["q"] = qos("q")
    world.config = world.config._replace(enforce_part_limits="ALL")
    found = world.judge(*options)
    assert (found.verdict, found.reason, found.refused) == ("never", "", True)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"allow_accounts": ("b",)}, "AccountNotAllowed"),
        ({"deny_accounts": ("a",)}, "AccountNotAllowed"),
        ({"allow_qos": ("p",)}, "QOSNotAllowed"),
        ({"deny_qos": ("q",)}, "QOSNotAllowed"),
        ({"allow_accounts": ("a",), "deny_accounts": ("a",)}, ""),
        ({"allow_qos": ("q", "p"), "deny_qos": ("q",)}, ""),
    ],
    ids=str,
)
def test_whom_the_partition_admits(change, reason):
    world = World(qos("q"))
    world.change(**change)
    found = world.judge()
    assert (found.verdict, found.reason) == ("not_allowed" if reason else "fits", reason)
    world.config = world.config._replace(enforce_part_limits="ALL")
    assert world.judge().refused is bool(reason)


@pytest.mark.parametrize(
    ("enforced", "other", "verdict", "refused"),
    [
        ("NO", {"max_time": 30}, "fits", False),
        ("ANY", {"max_time": 30}, "fits", False),
        ("ANY", {"deny_accounts": ("a",)}, "fits", False),
        ("ALL", {"max_time": 30}, "never", True),
        ("ALL", {"deny_accounts": ("a",)}, "not_allowed", True),
    ],
    ids=str,
)
@pytest.mark.parametrize("names", ["main,other", "other,main"])
def test_one_of_several_partitions_will_do_unless_all_are_enforced(
    enforced, other, verdict, refused, names
):
    world = World(qos("q"))
    world.partitions["other"] = world.partition._replace(name="other", default=False, **other)
    world.config = world.config._replace(enforce_part_limits=enforced)
    found = world.judge("--time=60", f"--partition={names}")
    assert (found.verdict, found.refused) == (verdict, refused)
    # None of them will do.
    world.change(**other)
    found = world.judge("--time=60", f"--partition={names}")
    assert found.verdict in ("never", "not_allowed")
    assert found.refused is (enforced != "NO")


def test_a_closed_partition_has_a_qos_that_refuses():
    world = World(qos("q"), qos("p", "DenyOnLimit", GrpTRES={"cpu": 1}))
    closed = {"deny_accounts": ("a",), "qos": "p"}
    world.partitions["other"] = world.partition._replace(name="other", default=False, **closed)
    world.config = world.config._replace(enforce_part_limits="ANY")
    assert world.judge("-c1", "--partition=main,other").verdict == "fits"
    assert world.judge("-c2", "--partition=main,other").refused


def test_associations_for_single_partitions_and_a_list_of_them():
    world = World(qos("q"))
    world.partitions["other"] = world.partition._replace(name="other", default=False)
    assert world.judge("--partition=main,other").verdict == "fits"
    own = world.assocs["a", "alice", ""]
    world.assocs["a", "alice", "other"] = own._replace(partition="other")
    for both in ("main,other", "other,main"):
        found = world.judge(f"--partition={both}")
        assert (found.verdict, found.refused, found.foreign) == ("not_allowed", True, False)
        assert world.judge(f"--partition={both}", where="b").verdict == "fits"
    for one in ("main", "other"):
        assert world.judge(f"--partition={one}").verdict == "fits"
    world.assocs["a", "alice", "main"] = own._replace(partition="main")
    del world.assocs["a", "alice", "other"], world.assocs["a", "alice", ""]
    assert world.judge("--partition=main,other").verdict == "not_allowed"


def test_the_first_partition_gives_the_time():
    world = World(qos("q", MaxWallPJ=30))
    world.change(default_time=20)
    world.partitions["other"] = world.partition._replace(
        name="other", default=False, default_time=35
    )
    assert world.judge("--partition=main,other").verdict == "fits"
    found = world.judge("--partition=other,main")
    assert (found.verdict, found.reason) == ("never", "QOSMaxWallDurationPerJobLimit")
    assert world.judge("--partition=other,main", "--time=20").verdict == "fits"


def test_a_longer_time_than_the_partitions_beside_the_least():
    """The main scheduler says PartitionTimeLimit; the backfill scheduler starts the job."""
    world = World(qos("q"))
    world.change(max_time=30)
    found = world.judge("--time=60", "--time-min=20")
    assert (found.verdict, found.reason) == ("unknown", "PartitionTimeLimit")
    assert "backfill" in found.why
    world.config = world.config._replace(enforce_part_limits="ALL")
    assert world.judge("--time=60", "--time-min=20").refused


def test_a_job_without_end_asks_for_no_number_of_minutes():
    world = World(qos("q"))
    world.change(max_time=30)
    assert world.judge("--time=0").why == "partition main: MaxTime is 30m, asked unlimited"


@pytest.mark.parametrize(
    ("flag", "options", "verdict"),
    [
        ("RequiresReservation", (), "not_allowed"),
        ("RequiresReservation", ("--reservation=r",), "fits"),
        ("EnforceUsageThreshold", (), "unknown"),
        ("NoReserve", (), "fits"),
        ("NoDecay", (), "fits"),
    ],
)
def test_flags_that_decide_by_themselves(flag, options, verdict):
    assert World(qos("q", flag)).judge(*options).verdict == verdict


# -- what is not known --------------------------------------------------------------------------


def test_a_missing_kind_is_a_doubt_and_an_absent_tres_is_not():
    limited = qos("q")
    without = Scope({k: v for k, v in limited.limits.tres.items() if k != "GrpTRES"},
                    limited.limits.counts)  # fmt: skip
    found = World(limited._replace(limits=without)).judge()
    assert (found.verdict, found.why) == ("unknown", "GrpTRES of qos q is not known")
    without = Scope(limited.limits.tres, {})
    assert World(limited._replace(limits=without)).judge().verdict == "unknown"


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (Limit(None, UNKNOWN), "fits"),
        (Limit(4, UNKNOWN), "unknown"),
        (Limit(UNKNOWN, 0), "unknown"),
        (Limit(4, 0), "fits"),
        (Limit(0, 0), "never"),
    ],
    ids=str,
)
def test_unlimited_zero_and_unknown_are_three_things(value, verdict):
    limited = qos("q")
    limited.limits.tres["GrpTRES"]["cpu"] = value
    assert World(limited).judge("-c1").verdict == verdict


def test_use_that_is_not_known_does_not_matter_without_a_limit():
    # PrivateData: the accounts' records come from sacctmgr, without use.
    world = World(qos("q"))
    hidden = account("a")
    for kind in list(hidden.limits.counts):
        hidden.limits.counts[kind] = Limit(None, UNKNOWN)
    world.add(hidden)
    assert world.judge().verdict == "fits"


def test_flags_that_are_not_known_are_a_doubt():
    assert World(qos("q")._replace(flags=UNKNOWN)).judge().verdict == "unknown"


def test_the_tree_must_be_known_to_its_root():
    world = World(qos("q"))
    del world.assocs["root", "", ""]
    found = world.judge()
    assert (found.verdict, found.why) == ("unknown", "the accounts above a are not all known")


def test_a_relative_qos_without_a_row_of_mine_is_not_guessed():
    # sacctmgr shows percentages; what they come to only slurmctld knows.
    limited = qos("q", "Relative", MaxTRESPU={"cpu": 50})._replace(users={}, accounts={})
    assert World(limited).judge().verdict == "unknown"


def test_more_used_than_the_limit_leaves_less_than_nothing():
    found = World(qos("q", GrpTRES={"cpu": (4, 10)})).judge("-c1")
    assert (found.verdict, found.headroom["cpu"]) == ("waits_others", -6)


def test_my_own_use_in_a_limit_on_minutes():
    world = World(qos("q", GrpTRESRunMins={"cpu": (100, 60)}))
    world.jobs = (job("1", {"cpu": 1}, minutes=60),)
    assert world.judge("-c1", "--time=50").verdict == "waits_mine"
    world.jobs = (job("1", {"cpu": 1}, minutes=5),)
    assert world.judge("-c1", "--time=50").verdict == "waits_others"


def test_limit_helper_of_these_tests():
    assert limit((4, 1)) == Limit(4, 1)
    assert limit(None) == Limit(None, 0)
