"""Known cases (bug reports of other tools): `explain` and real submissions say the same."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Bed, Result

WRAP = ("--wrap", "sleep 300")


def lab(qos: str, second: bool = True) -> str:
    """tess's policy: lab-a with one QOS, and lab-b without limits."""
    text = f"version: 1\naccounts:\n  - {{name: lab-a, qos: [{qos}]}}\n"
    return text + ("  - {name: lab-b, qos: [roomy]}\n" if second else "") + "cache: 0\n"


def judge(bed: Bed, qos: str, *args: str) -> dict[str, Any]:
    """The candidate lab-a/QOS, as explain has it."""
    first: dict[str, Any] = bed.explain(*args, user="tess", policy=lab(qos))["candidates"][0]
    return first


def submit(bed: Bed, qos: str, *args: str) -> Result:
    """Submit as tess to whichever of the two has room."""
    return bed.sbatch(*args, user="tess", policy=lab(qos))


def pends(bed: Bed, qos: str, *args: str) -> str:
    """slurmctld's own reason for the same job in lab-a/QOS."""
    job = bed.sbatch("-A", "lab-a", "-q", qos, *args, user="tess", shim=False).job
    state, reason = bed.cluster.wait_reason(job, ignore=("None", "", "Priority"))
    return f"{state} {reason}"


def test_B10_submit_limits_count_every_task(bed: Bed) -> None:
    six, five = ("--array=1-6%2", "--mem=10M", *WRAP), ("--array=1-5", "--mem=10M", *WRAP)
    found = judge(bed, "submit5", *six)
    assert (found["verdict"], found["refused"]) == ("not_allowed", True)
    assert bed.where(submit(bed, "submit5", *six).job) == "lab-b/roomy"
    bare = bed.sbatch("-A", "lab-a", "-q", "submit5", *six, user="tess", shim=False)
    assert bare.rc == 1
    assert judge(bed, "submit5", *five)["verdict"] == "fits"
    listed = lab("submit5") + "rules: [{name: listed, order: listed}]\n"
    job = bed.sbatch(*five, user="tess", policy=listed).job
    assert bed.where(job) == "lab-a/submit5"
    # And now not one more.
    assert judge(bed, "submit5", "--mem=10M", *WRAP)["verdict"] == "not_allowed"


def test_B10_a_submit_limit_reached_now_is_no_never(bed: Bed) -> None:
    """Later, one job will be taken: 75. Six at once never will be: 77."""
    alone = lab("submit5", second=False)
    five = ("-H", "--array=1-5", "--mem=10M", *WRAP)
    assert bed.sbatch(*five, user="tess", policy=alone).rc == 0
    assert bed.sbatch("--array=1-6", "--mem=10M", *WRAP, user="tess", policy=alone).rc == 77
    assert bed.sbatch("--mem=10M", *WRAP, user="tess", policy=alone).rc == 75


def test_B15_typed_gpu_limit_and_untyped_request(bed: Bed) -> None:
    untyped = ("--gres=gpu:2", "--mem=10M", *WRAP)
    assert judge(bed, "typed", *untyped)["verdict"] == "fits"
    # An untyped request gets three of that type: used exceeds what the limit allows.
    bed.cluster.hold("bob", "-A", "lab-a", "-q", "typed", "--gres=gpu:3", "--mem=10M")
    typed = judge(bed, "typed", "--gres=gpu:a100:1", "--mem=10M", *WRAP)
    assert (typed["verdict"], typed["reason"]) == ("waits_others", "QOSGrpGRES")
    check = next(c for c in typed["limits"] if c["tres"] == "gres/gpu:a100")
    assert (check["limit"], check["used"], check["requested"]) == (1, 3, 1)
    assert typed["headroom"]["gres/gpu:a100"] == -2
    assert judge(bed, "typed", *untyped)["verdict"] == "fits"
    args = ("--gres=gpu:a100:1", "--mem=10M", *WRAP)
    assert pends(bed, "typed", *args) == "PENDING QOSGrpGRES"
    assert bed.where(submit(bed, "typed", *args).job) == "lab-b/roomy"


@pytest.mark.parametrize(
    ("args", "env"),
    [
        (("--mem=0",), {}),
        (("--mem-per-cpu=0",), {}),
        (("--mem=0G",), {}),
        ((), {"SBATCH_MEM_PER_NODE": "0"}),
    ],
    ids=["mem", "per-cpu", "unit", "env"],
)
def test_B18_zero_memory_is_the_whole_node(bed: Bed, args: tuple[str, ...], env: Any) -> None:
    explained = bed.explain(*args, *WRAP, user="tess", policy=lab("mem100"), env=env)
    first = explained["candidates"][0]
    job = bed.sbatch(*args, *WRAP, user="tess", policy=lab("mem100"), env=env).job
    bed.wait_running(job)
    shown = bed.cluster.run("squeue", "-h", "-j", job, "-O", "tres-alloc:200").stdout.strip()
    tres = dict(t.split("=") for t in shown.split(","))
    assert _mib(tres["mem"]) == 4194304
    assert explained["request"]["tres"]["mem"] == 4194304
    assert (first["verdict"], first["reason"]) == ("never", "QOSGrpMemLimit")
    assert bed.where(job) == "lab-b/roomy"


def _mib(text: str) -> int:
    units = {"M": 1, "G": 1024, "T": 1024**2}
    return int(float(text[:-1]) * units[text[-1]])


@pytest.mark.parametrize(
    ("text", "mib"),
    [("512K", 1), ("1500K", 2), ("2GB", 2048), ("2gb", 2048), ("2G", 2048), ("1tb", 1048576)],
)
def test_B19_memory_units(bed: Bed, text: str, mib: int) -> None:
    explained = bed.explain(f"--mem={text}", "-H", *WRAP, user="tess", policy=lab("mem100"))
    assert explained["request"]["tres"]["mem"] == mib
    job = submit(bed, "mem100", f"--mem={text}", "-H", *WRAP).job
    shown = bed.cluster.run("squeue", "-h", "-j", job, "-O", "tres-alloc:200").stdout.strip()
    assert _mib(dict(t.split("=") for t in shown.split(","))["mem"]) == mib


@pytest.mark.parametrize("text", ["1.5G", "1.0G", "2GiB", "1500B", "2 G"])
def test_B19_bad_memory_units_stay_sbatchs_own_error(bed: Bed, text: str) -> None:
    bare = bed.sbatch(f"--mem={text}", *WRAP, user="tess", shim=False)
    ours = submit(bed, "mem100", f"--mem={text}", *WRAP)
    assert bare.rc != 0
    assert (ours.rc, ours.out) == (bare.rc, bare.out)
    assert ours.err.endswith(bare.err)
    assert len(ours.lines) - len(bare.lines) in (0, 1)


@pytest.mark.parametrize(
    ("qos", "args", "verdict", "reason"),
    [
        ("runmins", ("-c4", "-t", "300"), "never", "QOSGrpCPURunMinutesLimit"),
        ("mingpu", ("-c1",), "never", "QOSMinGRES"),
        ("wall60", ("-t", "61"), "never", "QOSMaxWallDurationPerJobLimit"),
        ("job4cpu", ("-c5",), "never", "QOSMaxCpuPerJobLimit"),
        ("billing8", ("-c9",), "never", "QOSGrpBilling"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_B22_all_the_other_limits(
    bed: Bed, qos: str, args: tuple[str, ...], verdict: str, reason: str
) -> None:
    args = (*args, "--mem=10M", *WRAP)
    found = judge(bed, qos, *args)
    assert (found["verdict"], found["reason"]) == (verdict, reason)
    assert bed.where(submit(bed, qos, *args).job) == "lab-b/roomy"
    assert pends(bed, qos, *args) == f"PENDING {reason}"


def test_B22_job_counts(bed: Bed) -> None:
    bed.cluster.hold("bob", "-A", "lab-a", "-q", "onejob", "--mem=10M")
    args = ("--mem=10M", *WRAP)
    found = judge(bed, "onejob", *args)
    assert (found["verdict"], found["reason"]) == ("waits_others", "QOSGrpJobsLimit")
    assert bed.where(submit(bed, "onejob", *args).job) == "lab-b/roomy"
    assert pends(bed, "onejob", *args) == "PENDING QOSGrpJobsLimit"


def test_B23_denyonlimit_refuses_only_at_the_limit_itself(bed: Bed) -> None:
    bed.cluster.hold("bob", "-A", "lab-a", "-q", "deny4", "-c3", "--mem=10M")
    two, five = ("-c2", "--mem=10M", *WRAP), ("-c5", "--mem=10M", *WRAP)
    first = judge(bed, "deny4", *two)
    assert (first["verdict"], first["reason"], first["refused"]) == (
        "waits_others", "QOSGrpCpuLimit", False,
    )  # fmt: skip
    assert pends(bed, "deny4", *two) == "PENDING QOSGrpCpuLimit"
    second = judge(bed, "deny4", *five)
    assert (second["verdict"], second["refused"]) == ("never", True)
    bare = bed.sbatch("-A", "lab-a", "-q", "deny4", *five, user="tess", shim=False)
    assert bare.rc == 1
    assert bed.where(submit(bed, "deny4", *five).job) == "lab-b/roomy"
    alone = bed.sbatch(*five, user="tess", policy=lab("deny4", second=False))
    assert (alone.rc, alone.out) == (77, b"")
