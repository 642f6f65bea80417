"""Laws that hold for every snapshot and every request (Hypothesis, on the pure core)."""

from __future__ import annotations

import json

from corebuild import RELEASE, World, account, job, promise, qos
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sbatch_router.core.decide import VERDICTS, decide
from sbatch_router.core.policy import Account, Blocked, Policy, Rule, WhenFull
from sbatch_router.core.report import as_json
from sbatch_router.core.snapshot import Scope
from sbatch_router.core.tres import UNKNOWN, Limit, format_tres, parse_limit, parse_tres
from sbatch_router.slurm.request import read_request

settings.register_profile(
    "laws", deadline=None, max_examples=60, suppress_health_check=list(HealthCheck)
)
settings.load_profile("laws")

TRES = ("cpu", "mem", "node", "billing", "gres/gpu", "gres/gpu:a100")
POOLS = ("GrpTRES", "GrpTRESMins", "GrpTRESRunMins", "MaxTRESPU", "MaxTRESPA")
ONE_JOB = ("MaxTRESPJ", "MaxTRESPN", "MaxTRESMinsPJ")
COUNTS = ("GrpJobs", "GrpSubmitJobs", "GrpWall", "MaxWallPJ")
ROWS = ("MaxJobsPU", "MaxJobsPA", "MaxSubmitJobsPU", "MaxSubmitJobsPA")
FLAGS = ("DenyOnLimit", "OverPartQOS", "NoReserve", "PartitionTimeLimit")

#: Best first; `unknown` is no verdict, so it is left out of comparisons.
RANK = {v: i for i, v in enumerate(v for v in VERDICTS if v != "unknown")}

amounts = st.integers(0, 12)
limited = st.one_of(st.none(), amounts)


@st.composite
def pools(draw, kinds):
    found = {}
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=3, unique=True)):
        scale = 60 if "Mins" in kind else 1
        names = draw(st.lists(st.sampled_from(TRES), max_size=2, unique=True))
        found[kind] = {
            name: (draw(amounts) * scale * (100 if name == "mem" else 1), draw(amounts))
            for name in names
        }
    return found


@st.composite
def any_qos(draw, name):
    limits = draw(pools((*POOLS, *ONE_JOB, "MinTRESPJ")))
    for kind in draw(st.lists(st.sampled_from((*COUNTS, *ROWS)), max_size=2, unique=True)):
        limits[kind] = (draw(amounts) * (30 if "Wall" in kind else 1), draw(amounts))
    flags = draw(st.lists(st.sampled_from(FLAGS), max_size=1))
    return qos(name, *flags, factor=draw(st.sampled_from((None, None, 0.5, 2.0))), **limits)


@st.composite
def worlds(draw):
    world = World(
        draw(any_qos("q")), draw(any_qos("r")), release=draw(st.sampled_from((RELEASE, (24, 11))))
    )
    if draw(st.booleans()):
        world.change(qos="r")
    for where in ("a", "b"):
        limits = draw(pools(("GrpTRES", "GrpTRESMins", "GrpTRESRunMins")))
        world.add(account(where, **limits))
        world.add(account(where, user="alice", **draw(pools(("GrpTRES", "MaxTRESPJ")))))
    if draw(st.booleans()):
        world.config = world.config._replace(enforce=frozenset(("limits", "qos", "safe")))
    jobs = []
    for number in range(draw(st.integers(0, 3))):
        state = draw(st.sampled_from(("RUNNING", "PENDING")))
        tres = {name: draw(st.integers(1, 4)) for name in ("cpu", "gres/gpu")}
        tres.update(mem=tres["cpu"] * 100, node=1, billing=tres["cpu"])
        jobs.append(job(str(number), tres, state, where=draw(st.sampled_from("ab"))))
    world.jobs = tuple(jobs)
    return world


@st.composite
def requests(draw):
    return {
        "cpus": draw(st.integers(1, 6)),
        "mem": draw(st.integers(1, 8)) * 100,
        "minutes": draw(st.integers(1, 90)),
        "gpus": draw(st.integers(0, 3)),
        "tasks": draw(st.sampled_from((1, 1, 2, 3))),
        "typed": draw(st.booleans()),
    }


def options(size):
    found = [f"-c{size['cpus']}", f"--mem={size['mem']}M", f"--time={size['minutes']}"]
    if size["gpus"]:
        found.append(f"--gres=gpu:{'a100:' if size['typed'] else ''}{size['gpus']}")
    if size["tasks"] > 1:
        found.append(f"--array=1-{size['tasks']}")
    return found


def both(one, other):
    """Two verdicts that can be compared."""
    assume("unknown" not in (one.verdict, other.verdict))
    return RANK[one.verdict], RANK[other.verdict]


def more_used(scope, name, by):
    """Every limit of a kind with more use."""
    tres = {
        kind: {
            t: v._replace(used=v.used + by) if name == kind and v.used is not None else v
            for t, v in limits.items()
        }
        for kind, limits in scope.tres.items()
    }
    counts = {
        k: v._replace(used=v.used + by) if k == name and v.used is not None else v
        for k, v in scope.counts.items()
    }
    return Scope(tres, counts)


@given(worlds(), requests(), st.sampled_from((*POOLS, *COUNTS[:3], *ROWS)), st.integers(1, 9))
def test_more_usage_never_improves_a_verdict(world, size, kind, by):
    before = world.judge(*options(size))
    for name, found in list(world.qos.items()):
        world.qos[name] = found._replace(
            limits=more_used(found.limits, kind, by),
            users={u: more_used(row, kind, by) for u, row in found.users.items()},
            accounts={a: more_used(row, kind, by) for a, row in found.accounts.items()},
        )
    for key, assoc in list(world.assocs.items()):
        world.assocs[key] = assoc._replace(limits=more_used(assoc.limits, kind, by))
    better, worse = both(before, world.judge(*options(size)))
    assert better <= worse


@given(worlds(), requests(), requests())
def test_a_larger_request_never_fits_where_a_smaller_did_not(world, size, more):
    # A minimum (MinTRESPJ) is the one limit that a larger request may meet first.
    for found in world.qos.values():
        found.limits.tres["MinTRESPJ"].clear()
    assume(size["typed"] == more["typed"])
    larger = {k: v if k == "typed" else v + (more[k] if k != "tasks" else more[k] - 1)
              for k, v in size.items()}  # fmt: skip
    small, large = world.judge(*options(size)), world.judge(*options(larger))
    if large.verdict == "fits":
        assert small.verdict in ("fits", "unknown")
    if large.verdict in ("fits", "waits_mine", "waits_others"):
        assert small.verdict not in ("never", "not_allowed") or small.verdict == "unknown"


@given(worlds(), requests(), st.integers(1, 3), st.sampled_from("ab"))
def test_promises_only_worsen(world, size, tasks, where):
    before = world.judge(*options(size))
    world.ledger = (promise({"cpu": 2, "mem": 100, "gres/gpu": 1}, tasks=tasks, where=where),)
    better, worse = both(before, world.judge(*options(size)))
    assert better <= worse


@given(worlds(), requests())
def test_fits_means_no_reason_and_a_refusal_means_none_either(world, size):
    found = world.judge(*options(size))
    if found.verdict == "fits" or found.refused:
        assert found.reason == ""
    if found.verdict in ("waits_others", "never") and not found.refused:
        assert found.reason
    if found.verdict == "fits":
        assert found.starts == size["tasks"]


@given(worlds(), requests(), st.randoms(use_true_random=False))
def test_the_order_of_records_in_the_snapshot_does_not_matter(world, size, random):
    before = world.judge(*options(size))

    def shuffled(items):
        pairs = list(items.items())
        random.shuffle(pairs)
        return dict(pairs)

    world.qos, world.assocs = shuffled(world.qos), shuffled(world.assocs)
    jobs = list(world.jobs)
    random.shuffle(jobs)
    world.jobs = tuple(jobs)
    first = next(iter(world.qos))
    assert first in ("q", "r")
    assert world.judge(*options(size), on="q") == before._replace(qos="q")


POLICY = Policy(tuple(Account(n, (q,)) for n in "ab" for q in "qr"), when_full=WhenFull("queue"))


@given(worlds(), requests(), st.permutations(POLICY.accounts))
def test_the_order_of_candidates_changes_no_verdict(world, size, order):
    def verdicts(policy):
        found = world.decide(*options(size), policy=policy)
        return {(c.account, c.qos): c for c in found.candidates}, found

    one, chosen = verdicts(POLICY)
    other, again = verdicts(POLICY._replace(accounts=tuple(order)))
    assert one == other
    assert chosen.action == again.action


@given(worlds(), requests(), st.sampled_from(("a", "b", None)), st.sampled_from("abc"))
def test_what_must_not_be_chosen_never_is(world, size, blocked, only):
    policy = POLICY._replace(
        blocked=(Blocked(blocked, "no"),) if blocked else (),
        rules=(Rule("one", candidates=((only, None),)),) if only != "c" else (),
    )
    found = world.decide(*options(size), policy=policy)
    if found.action in ("route", "queue"):
        chosen = [c for c in found.candidates if (c.account, c.qos) == (found.account, found.qos)]
        assert chosen[0].verdict not in ("blocked", "never", "not_allowed", "unknown")
        assert not chosen[0].refused
    if found.action == "route":
        assert chosen[0].verdict == "fits"


@given(worlds(), requests())
def test_ties_go_to_policy_order(world, size):
    # Two accounts that are the same in everything but their name.
    for key in [key for key in world.assocs if key[0] == "b"]:
        same = world.assocs["a", key[1], ""]
        world.assocs[key] = same._replace(account="b", parent="b" if key[1] else "root")
    world.jobs = ()
    for first, second in (("a", "b"), ("b", "a")):
        policy = Policy((Account(first, ("q",)), Account(second, ("q",))))
        found = world.decide(*options(size), policy=policy)
        assert found.account in (first, "")


@given(worlds(), requests())
def test_a_decision_is_a_function_of_its_arguments(world, size):
    request = read_request([*options(size), "--wrap", "x"], {}, None)
    snapshot = world.snapshot()
    assert decide(request, snapshot, (), POLICY, 1.0) == decide(request, snapshot, (), POLICY, 2.0)


@given(st.dictionaries(st.sampled_from((*TRES, "license/a", "gres/nic")), st.integers(0, 2**62)))
def test_parse_and_format_of_tres_are_inverse(tres):
    assert parse_tres(format_tres(tres)) == tres


@given(limited, st.one_of(st.none(), amounts))
def test_limits_read_back_as_they_are(most, used):
    text = f"{'N' if most is None else most}({'N' if used is None else used})"
    assert parse_limit(text) == Limit(most, UNKNOWN if used is None else used)


@given(worlds(), requests(), st.sampled_from((None, 0, 3, "unknown")))
def test_unlimited_zero_and_unknown_stay_apart_in_json(world, size, value):
    most = UNKNOWN if value == "unknown" else value
    limits = world.qos["q"].limits
    for kind in limits.tres:
        limits.tres[kind].clear()
    limits.tres["GrpTRES"]["cpu"] = Limit(most, 0)
    world.change(qos="")
    request = read_request([*options(size), "--wrap", "x"], {}, None)
    policy = Policy((Account("a", ("q",)),))
    snapshot = world.snapshot()
    decision = decide(request, snapshot, (), policy, 0.0)
    shown = json.loads(json.dumps(as_json(decision, request, snapshot, 0.0)))["candidates"][0]
    rows = [r for r in shown["limits"] if (r["kind"], r["where"]) == ("GrpTRES", "qos q")]
    if value is None or value == "unknown":
        assert rows == []
    else:
        assert [r["limit"] for r in rows] == [value]
    if value == "unknown" and decision.candidates[0].verdict != "never":
        assert shown["verdict"] in ("unknown", "not_allowed")
    if value is None and "cpu" in shown["headroom"]:
        others = [r["limit"] for r in shown["limits"] if r["tres"] == "cpu"]
        assert (shown["headroom"]["cpu"] is None) or others
