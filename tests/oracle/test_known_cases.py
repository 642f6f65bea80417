"""Known cases (B07 to B54), each as a kind, judged by a real slurmctld.

Every line is one island of a real cluster: limits, what runs, what is asked, and what is right.
The oracle compares TRES, refusal and reason with slurmctld's; the table says what they must be.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import verdict_oracle as oracle
from verdict_oracle import Bench, Job, State

from sbatch_router.core.policy import Account, Policy
from sbatch_router.slurm.request import read_request

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not shutil.which("slurmctld"), reason="no Slurm here"),
]

#: Limits, options, verdict, reason (or what refuses), and jobs that run before.
Case = tuple[dict[str, str], str, str, str, tuple[Job, ...]]


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with oracle.Cluster.start(oracle.spec(1)) as cluster:
        yield Bench(cluster, 1)


def case(limits: dict[str, str], options: str, verdict: str, reason: str, *jobs: Job) -> Case:
    """``{"q GrpTRES": "cpu=4"}``: on an island's entity."""
    return limits, options, verdict, reason, jobs


def bob(options: str, qos: str = "q", account: str = "a") -> Job:
    return Job("bob", account, qos, tuple(options.split()))


def alice(options: str, qos: str = "q", account: str = "a") -> Job:
    return Job("alice", account, qos, tuple(options.split()))


def check(bench: Bench, *cases: Case) -> list[oracle.Result]:
    """Each on an island of its own, the odd ones on partitions with weights and a QOS."""
    states, asks = [], []
    for limits, options, _, _, jobs in cases:
        rows = tuple((*key.split(" "), value) for key, value in limits.items())
        states.append(State(rows, (), jobs))  # type: ignore[arg-type]
        asks.append(alice(options))
    bench.prepare(states)
    results = bench.round(asks)
    for result, (_, _, verdict, reason, _) in zip(results, cases):
        assert not result.wrong, result.text()
        said = result.ours["why"] if result.ours["refused"] else result.ours["reason"]
        assert (result.ours["verdict"], reason in said) == (verdict, True), result.text()
        assert bool(reason) or not said, result.text()
    return results


def test_B07_zero_is_a_limit(bench: Bench) -> None:
    results = check(
        bench,
        case({"q GrpTRES": "gres/gpu=0"}, "--gres=gpu:1", "never", "QOSGrpGRES"),
        case({"q GrpTRES": "gres/gpu=0"}, "-c1", "fits", ""),
        case({"q GrpTRES": "cpu=0"}, "-c1", "never", "QOSGrpCpuLimit"),
        case({"q GrpTRES": "mem=0"}, "-c1", "never", "QOSGrpMemLimit"),
        case({"q GrpTRES": "node=0"}, "-c1", "never", "QOSGrpNodeLimit"),
        case({"q GrpTRES": "billing=0"}, "-c1", "never", "QOSGrpBilling"),
        case({"q GrpTRES": "license/lic=0"}, "-L lic:1", "never", "QOSGrpLicense"),
        case({"q MaxTRESPerUser": "gres/gpu=0"}, "--gres=gpu:1", "never", "QOSMaxGRESPerUser"),
        case({"q MaxTRESPerAccount": "cpu=0"}, "-c1", "never", "MaxCpuPerAccount"),
        case({"top GrpTRES": "gres/gpu=0"}, "--gres=gpu:1", "never", "AssocGrpGRES"),
        case({"alice/a MaxTRESPerJob": "cpu=0"}, "-c1", "never", "AssocMaxCpuPerJobLimit"),
        case({"q GrpJobs": "0"}, "-c1", "never", "QOSGrpJobsLimit"),
        case({"a MaxJobs": "0"}, "-c1", "never", "AssocMaxJobsLimit"),
        case({"q GrpTRESMins": "cpu=0"}, "-c1", "never", "QOSGrpCPUMinutesLimit"),
        case({"q GrpWall": "0"}, "-c1", "never", "QOSGrpWallLimit"),
        case({"q GrpSubmitJobs": "0"}, "-c1", "not_allowed", "QOSGrpSubmitJobsLimit"),
    )
    for result in results:
        for _, _, kind, *_, held in result.ours["checks"]:
            assert held, (kind, result.text())
    assert results[0].ours["checks"][0][5] == 0


def test_B10_submit_limits_take_whole_arrays(bench: Bench) -> None:
    many = {"q MaxSubmitJobsPerUser": "5"}
    check(
        bench,
        case(many, "--array=1-5", "fits", ""),
        case(many, "--array=1-6", "not_allowed", "QOSMaxSubmitJobPerUserLimit"),
        case(many, "--array=1-6%2", "not_allowed", "QOSMaxSubmitJobPerUserLimit"),
        case(many, "--array=1-5", "not_allowed", "QOSMaxSubmitJobPerUserLimit", alice("-c1")),
        case(many, "--array=1-5", "fits", "", bob("-c1")),
        case({"q GrpSubmitJobs": "5"}, "--array=1-5", "not_allowed", "QOSGrpSubmit", bob("-c1")),
        case({"q MaxSubmitJobsPerAccount": "5"}, "--array=0-5", "not_allowed", "MaxSubmitJobsPer"),
        case({"a GrpSubmitJobs": "5"}, "--array=0-5", "not_allowed", "AssocGrpSubmitJobsLimit"),
        case({"top GrpSubmitJobs": "5"}, "--array=0-5", "not_allowed", "AssocGrpSubmitJobsLimit"),
        case({"alice/a MaxSubmitJobs": "5"}, "--array=0-5", "not_allowed", "AssocMaxSubmitJob"),
        case({"a MaxSubmitJobs": "5"}, "--array=0-5", "not_allowed", "AssocMaxSubmitJobLimit"),
        case({"q MaxSubmitJobsPerUser": "9", "a MaxSubmitJobs": "1"}, "--array=1-5", "fits", ""),
    )


def test_B12_more_than_the_pool_holds(bench: Bench) -> None:
    check(
        bench,
        case({"q GrpTRES": "mem=1000"}, "--mem=2000M", "never", "QOSGrpMemLimit"),
        case({"a GrpTRES": "mem=1000"}, "--mem=2000M", "never", "AssocGrpMemLimit"),
        case({"q GrpTRES": "cpu=4"}, "-c5", "never", "QOSGrpCpuLimit", bob("-c4")),
        case({"q MaxTRESPerUser": "cpu=4"}, "-c5", "never", "QOSMaxCpuPerUserLimit"),
        case({"q GrpTRESRunMins": "cpu=60"}, "-c2 -t60", "never", "QOSGrpCPURunMinutesLimit"),
        case({"q GrpTRES": "mem=1000"}, "--mem-per-cpu=300M -c4", "never", "QOSGrpMemLimit"),
        case({"q GrpTRES": "cpu=4"}, "-c2 --array=1-4", "waits_mine", ""),
    )


def test_B15_a_typed_limit_and_an_untyped_request(bench: Bench) -> None:
    typed = {"q GrpTRES": "gres/gpu:a100=1"}
    three = bob("--gres=gpu:a100:3")
    results = check(
        bench,
        case(typed, "--gres=gpu:2", "fits", ""),
        case(typed, "--gres=gpu:a100:1", "fits", ""),
        case(typed, "--gres=gpu:a100:1", "waits_others", "QOSGrpGRES", three),
        case(typed, "--gres=gpu:2", "fits", "", three),
        case(typed, "--gres=gpu:l4:1", "fits", "", three),
        case(typed, "--gpus=a100:2", "never", "QOSGrpGRES"),
        case({"q GrpTRES": "gres/gpu=3"}, "--gres=gpu:a100:1", "waits_others", "QOSGrpG", three),
        case({"q GrpTRES": "gres/gpu=4"}, "--gres=gpu:a100:1", "fits", "", three),
    )
    held = next(c for c in results[2].ours["checks"] if c[3] == "gres/gpu:a100")
    assert (held[5], held[6], held[9]) == (1, "3", 1)


def test_B18_memory_zero_is_all_of_the_node(bench: Bench) -> None:
    limit = {"q GrpTRES": "mem=4000000"}
    check(
        bench,
        case(limit, "--mem=0", "never", "QOSGrpMemLimit"),
        case(limit, "--mem-per-cpu=0", "never", "QOSGrpMemLimit"),
        case(limit, "--mem=0G", "never", "QOSGrpMemLimit"),
        case(limit, "--mem=10M", "fits", ""),
        case({"q GrpTRES": "cpu=4"}, "--mem=0 -c5", "never", "QOSGrpCpuLimit"),
    )


@pytest.mark.parametrize(
    ("text", "mib"),
    [("512K", 1), ("1500K", 2), ("2GB", 2048), ("2gb", 2048), ("2G", 2048), ("1tb", 2**20),
     ("100", 100), ("1.5G", None), ("2GiB", None), ("1500B", None)],
)  # fmt: skip
def test_B19_suffixes(bench: Bench, text: str, mib: Any) -> None:
    limits, ask = {"q GrpTRES": "mem=0"}, f"--mem={text}"
    if mib is not None:
        (result,) = check(bench, case(limits, ask, "never", "QOSGrpMemLimit"))
        assert result.tres["mem"] == mib
        return
    # What sbatch refuses is a doubt of ours: passed on, and its own message reaches the user.
    (ours,) = bench.judge([alice(ask)], whole=True)
    assert ours["verdict"] == "unknown" or read_request([ask], {}, None).doubts
    job, message = bench._submit(0, alice(ask))
    assert job is None, message


def test_B22_all_the_other_limits(bench: Bench) -> None:
    short, held = "-c2 -t30 --mem=100M", bob("-c2 -t30 --mem=100M --gres=gpu:a100:1")
    never = "never"
    check(
        bench,
        case({"q GrpTRESRunMins": "cpu=100"}, short, "waits_others", "QOSGrpCPURunMinutes", held),
        # Island 1 has a partition with billing weights: CPU=1, GRES/gpu=2.5.
        case({"q GrpTRES": "billing=5"}, short, "waits_others", "QOSGrpBilling", held),
        case({"q GrpJobs": "1"}, short, "waits_others", "QOSGrpJobsLimit", held),
        case({"q MinTRESPerJob": "gres/gpu=1"}, short, never, "QOSMinGRES"),
        case({"q MaxWallDurationPerJob": "29"}, short, never, "QOSMaxWallDurationPerJobLimit"),
        case({"q MaxTRESPerJob": "cpu=1"}, short, never, "QOSMaxCpuPerJobLimit"),
        case({"q MaxTRESPerNode": "mem=99"}, short, never, "QOSMaxMemoryPerNode"),
        case({"q MaxTRESMinsPerJob": "cpu=59"}, short, never, "QOSMaxCpuMinutesPerJobLimit"),
        case({"q MaxTRESPerUser": "cpu=3"}, short, "waits_mine", "QOSMaxCpuPerUser", alice("-c2")),
        case({"q MaxTRESPerAccount": "cpu=3"}, short, "waits_others", "MaxCpuPerAccount", held),
        case({"q MaxJobsPerUser": "1"}, short, "waits_mine", "QOSMaxJobsPerUser", alice("-c2")),
        case({"q MaxJobsPerAccount": "1"}, short, "waits_others", "MaxJobsPerAccount", held),
        case({"a GrpTRESRunMins": "mem=5999"}, short, "waits_others", "AssocGrpMemRunMin", held),
        case({"a MaxWallDurationPerJob": "29"}, short, never, "AssocMaxWallDurationPerJobLimit"),
        case({"top GrpJobs": "1"}, short, "waits_others", "AssocGrpJobsLimit", held),
        case({"p GrpTRES": "cpu=3"}, short, "waits_others", "QOSGrpCpuLimit", held),
    )


def test_B23_deny_on_limit_refuses_at_the_limit_only(bench: Bench) -> None:
    deny, three = {"q GrpTRES": "cpu=4", "q Flags": "DenyOnLimit"}, bob("-c3")
    check(
        bench,
        case(deny, "-c2", "waits_others", "QOSGrpCpuLimit", three),
        case(deny, "-c5", "never", "QOSGrpCpuLimit", three),
        case(deny, "-c1", "fits", "", three),
        case({"q Flags": "DenyOnLimit", "a GrpTRES": "cpu=4"}, "-c5", "never", "AssocGrpCpuLimit"),
        case({"q Flags": "DenyOnLimit", "q GrpTRESMins": "cpu=4"}, "-c1 -t5", "never", "QOSGrpCPU"),
        case({"p Flags": "DenyOnLimit", "q GrpTRES": "cpu=4"}, "-c5", "never", "QOSGrpCpuLimit"),
    )


@pytest.mark.parametrize(
    "form", ["--gres=gpu:a100:2", "--gpus=a100:2", "--gpus-per-node=a100:2",
             "-n2 --gpus-per-task=a100:1", "-n2 --ntasks-per-gpu=1 --gpus=a100:2"],
)  # fmt: skip
def test_B26_two_gpus_are_two_however_they_were_asked_for(bench: Bench, form: str) -> None:
    two, runs = {"q GrpTRES": "gres/gpu=3"}, bob(form)
    results = check(
        bench,
        case(two, "--gres=gpu:1", "fits", "", runs),
        case(two, "--gres=gpu:2", "waits_others", "QOSGrpGRES", runs),
        case({"q GrpTRES": "gres/gpu:a100=2"}, form, "waits_others", "QOSGrpGRES", runs),
    )
    used = [c[6] for c in results[1].ours["checks"] if c[3] == "gres/gpu"]
    assert used == ["2"]


def test_B46_the_environment_is_above_the_script(bench: Bench) -> None:
    """Which account, QOS and partition a job gets: sbatch's own precedence is ours."""
    script = "#!/bin/sh\n#SBATCH -A a0\n#SBATCH -p part0\n#SBATCH --qos=q0\nsleep 1\n"
    bench.prepare([])
    for name, value in (
        ("NOTHING", ""),
        ("SBATCH_ACCOUNT", "b2"),
        ("SBATCH_QOS", "r0"),
        ("SBATCH_PARTITION", "part2"),
        ("SLURM_ACCOUNT", "b2"),
        ("SLURM_JOB_ACCOUNT", "b2"),
        ("SALLOC_ACCOUNT", "b2"),
    ):
        env = {name: value}
        argv = ["--qos=q2"] if name == "SBATCH_ACCOUNT" else []
        done = bench.cluster.run_as(
            "alice", ["sbatch", "-H", "--parsable", *argv], env=env, input=script
        )
        shown = bench.cluster.run(
            "squeue", "-h", "-j", done.stdout.strip(), "-o", "%a %q %P"
        ).stdout.split()
        request = read_request(argv, env, script.encode())
        ours = [request.given(name).value for name in ("account", "qos", "partition")]  # type: ignore[union-attr]
        assert ours == shown, env
    bench.cluster.run("scancel", "-u", "alice")


@pytest.mark.parametrize("account", ["$proj", "null", "None", "", "(null)"])
def test_B53_placeholders_are_foreign_accounts(bench: Bench, account: str) -> None:
    ask = ("sbatch", f"--account={account}", "--partition=part0", "--wrap", "true")
    done = bench.cluster.run_as("alice", ask, check=False)
    assert done.returncode == 1
    assert "Invalid account" in done.stderr
    request = read_request([*ask[1:]], {}, None)
    decision = oracle.decide(request, bench.snapshot(), (), Policy((Account("a0", ("q0",)),)), 0.0)
    assert (decision.action, decision.candidates) == ("pass", ())


@pytest.mark.parametrize(
    "options",
    ["--gres=gpu:1 --gpus-per-node=1", "--gres=gpu:1 --gpus=1", "--gpus=2 --gpus-per-node=1",
     "--tres-per-task=gres/gpu=1", "--tres-per-task=cpu=2", "--gpus-per-task=1",
     "--gpus-per-node=1 --gpus-per-socket=1"],
)  # fmt: skip
def test_B54_gpu_options_that_exclude_each_other(bench: Bench, options: str) -> None:
    """What this release's sbatch refuses, we do not judge; what it takes, we judge as it does."""
    bench.prepare([State((("q", "GrpTRES", "gres/gpu=0"),))])
    words = tuple(options.split())
    job, message = bench._submit(0, Job("alice", "a", "q", words))
    (ours,) = bench.judge([Job("alice", "a", "q", words)], whole=True)
    if job is None:
        # 24.11 refuses at once what its nodes can never give; to us that is a verdict.
        nodes = "node configuration is not available" in message
        assert ours["verdict"] in (("unknown", "never") if nodes else ("unknown",)), message
        return
    bench._settled(0.0)
    ((_, state, reason),) = bench._jobs("alice")
    if ours["verdict"] == "unknown":
        return
    # More nodes than there are: slurmctld's two schedulers give two names to it, in turn.
    reasons = {"PartitionNodeLimit", "PartitionConfig"}
    same = ours["reason"] == reason or {ours["reason"], reason} == reasons
    expected = ("PENDING", same) if ours["reason"] else ("RUNNING", reason == "None")
    assert (state, True) == expected, (ours, reason)
