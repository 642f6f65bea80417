"""The seed's verification list, on a real cluster: where jobs go, and what is refused."""

from __future__ import annotations

import re
import time
from collections import Counter

import pytest

from .conftest import SEED, Bed

GPU_JOB = ("--gres=gpu:1", "-c", "8", "--mem=125G", "--wrap", "sleep 300")
CPU_JOB = ("-c", "8", "--mem=62500M", "--wrap", "sleep 300")
SMALL = ("--mem=1000M", "--wrap", "sleep 300")

QUEUE = SEED + "when_full: queue\n"


def fill(bed: Bed, account: str, mem: str, user: str = "bob", *more: str) -> str:
    """A job that runs: by default another user's."""
    return str(bed.cluster.hold(user, "-A", account, f"--mem={mem}", "-c1", *more))


def verdicts(explained: dict) -> dict[str, tuple[str, str]]:
    """Account -> (verdict, reason)."""
    return {c["account"]: (c["verdict"], c["reason"]) for c in explained["candidates"]}


# -- the seed's list -------------------------------------------------------------------------


def test_the_jam_goes_to_maigan_and_runs(bed: Bed) -> None:
    fill(bed, "clive", "250000M")
    # The jam itself: plain sbatch leaves the first of the jobs stuck in alice's default account.
    stuck = bed.sbatch(*GPU_JOB, shim=False).job
    assert bed.where(stuck) == "clive/clive"
    assert bed.cluster.wait_reason(stuck) == ("PENDING", "QOSGrpMemLimit")
    results = [bed.sbatch(*GPU_JOB, policy=SEED) for _ in range(4)]
    results.append(bed.sbatch(*CPU_JOB, policy=SEED))
    jobs = [result.job for result in results]
    assert [bed.where(job) for job in jobs] == ["maigan/maigan"] * 5
    bed.wait_running(*jobs)
    assert [bed.show(job)["JobState"] for job in jobs] == ["RUNNING"] * 5
    # One line each, with the numbers it was decided by.
    assert results[0].lines == [
        (
            "sbatch-router: submitted to maigan/maigan: gpu 1 of 4 free, "
            "mem 125G of 625G free, cpu 8 of 160 free"
        )
    ]
    assert results[3].lines == [
        (
            "sbatch-router: submitted to maigan/maigan: gpu 1 of 1 free, "
            "mem 125G of 250G free, cpu 8 of 136 free"
        )
    ]


def test_two_healthy_pools_are_filled_by_headroom(bed: Bed) -> None:
    # mem left, before each: maigan 625G, clive 312.5G; 125G a job.
    jobs = []
    for _ in range(6):
        jobs.append(bed.sbatch("--mem=125G", "-c1", "--wrap", "sleep 300", policy=SEED).job)
        bed.wait_running(jobs[-1])
    # 625 500 375 [250: clive's 312.5 is more] ...
    assert [bed.where(job).partition("/")[0] for job in jobs] == [
        "maigan", "maigan", "maigan", "clive", "maigan", "clive",
    ]  # fmt: skip


def test_no_change_of_account_is_said_by_nothing(bed: Bed) -> None:
    result = bed.sbatch(*SMALL, policy="version: 1\naccounts: [clive]\ncache: 0\n")
    assert (result.err, bed.where(result.job)) == (b"", "clive/clive")


def test_a_blocked_account_is_never_chosen_and_its_reason_is_printed(bed: Bed) -> None:
    policy = SEED.replace("accounts:\n", "accounts:\n  - brusko\n")
    jobs = [bed.sbatch(*SMALL, policy=policy).job for _ in range(3)]
    assert {bed.where(job) for job in jobs} == {"maigan/maigan"}
    explained = bed.explain(*SMALL, policy=policy)
    brusko = next(c for c in explained["candidates"] if c["account"] == "brusko")
    assert brusko["verdict"] == "blocked"
    assert brusko["why"] == "blocked by the policy: throttled since March"
    # Named by hand it is kept (explicit_account: cli: keep), but not without a word.
    kept = bed.sbatch("-A", "brusko", *SMALL, policy=policy)
    assert bed.where(kept.job) == "brusko/brusko"
    assert kept.lines == [
        "sbatch-router: account brusko is blocked (throttled since March), kept as you named it"
    ]


def test_a_blocked_account_is_not_chosen_when_all_others_are_full(bed: Bed) -> None:
    fill(bed, "clive", "320000M")
    fill(bed, "maigan", "640000M")
    before = bed.queue()
    result = bed.sbatch(*SMALL, policy=SEED)
    assert (result.rc, result.out) == (75, b"")
    assert bed.queue() == before
    assert "  brusko         blocked by the policy: throttled since March" in result.lines


def test_all_full_is_refused_with_numbers_reason_holder_and_what_to_do(bed: Bed) -> None:
    fill(bed, "clive", "250000M")
    fill(bed, "maigan", "600000M")
    before = bed.queue()
    result = bed.sbatch(*GPU_JOB, policy=SEED)
    assert (result.rc, result.out) == (75, b"")
    assert bed.queue() == before
    text = result.err.decode()
    assert text.startswith("sbatch-router: not submitted: every account is full\n")
    assert "  asked: cpu=8 mem=125G gres/gpu=1\n" in text
    assert re.search(
        r"(?m)^  clive/clive +full: mem limit 312\.5G, used 244\.14G, asked 125G "
        r"\[QOSGrpMemLimit\]$",
        text,
    ), text
    assert re.search(
        r"(?m)^  maigan/maigan +full: mem limit 625G, used 585\.93G, asked 125G "
        r"\[QOSGrpMemLimit\]$",
        text,
    ), text
    assert "squeue -A clive,maigan" in text
    assert "SBATCH_ROUTER=off sbatch" in text


def test_refusal_names_who_holds_the_pool(bed: Bed) -> None:
    fill(bed, "clive", "250000M")
    fill(bed, "maigan", "600000M")
    text = bed.sbatch(*GPU_JOB, policy=SEED).err.decode()
    held = [line.strip() for line in text.splitlines() if "held by" in line]
    assert held == ["held by bob 244.14G", "held by bob 585.93G"]


def test_B12_more_than_any_pool_holds(bed: Bed) -> None:
    before = bed.queue()
    result = bed.sbatch("--mem=700G", "-c1", "--wrap", "true", policy=SEED)
    assert (result.rc, result.out) == (77, b"")
    assert bed.queue() == before
    text = result.err.decode()
    assert text.startswith("sbatch-router: not submitted: no account may ever run this job\n")
    assert re.search(
        r"(?m)^  clive/clive +never fits: mem limit 312\.5G, used 0M?, asked 700G "
        r"\[QOSGrpMemLimit\]$",
        text,
    ), text
    assert re.search(r"(?m)^  maigan/maigan +never fits: mem limit 625G,", text), text
    explained = bed.explain("--mem=700G", "-c1", "--wrap", "true")
    assert explained["exit_code"] == 77
    assert verdicts(explained) == {
        "clive": ("never", "QOSGrpMemLimit"),
        "maigan": ("never", "QOSGrpMemLimit"),
        "brusko": ("blocked", ""),
    }


def test_never_counts_even_when_the_other_pool_is_only_full(bed: Bed) -> None:
    """One account could run it later: try again (75), not never (77)."""
    fill(bed, "maigan", "600000M")
    result = bed.sbatch("--mem=400G", "-c1", "--wrap", "true", policy=SEED)
    assert result.rc == 75


# -- my own jobs -----------------------------------------------------------------------------


def test_only_my_own_jobs_in_the_way_is_queued(bed: Bed) -> None:
    fill(bed, "clive", "320000M", "alice")
    fill(bed, "maigan", "640000M", "alice")
    result = bed.sbatch(*SMALL, policy=SEED)
    assert result.rc == 0
    assert "others" not in result.err.decode()
    assert "only your own jobs are in the way" in result.err.decode() or result.err == b""
    explained = bed.explain(*SMALL)
    assert explained["action"] == "queue"
    assert verdicts(explained)["clive"] == ("waits_mine", "QOSGrpMemLimit")
    assert verdicts(explained)["maigan"] == ("waits_mine", "QOSGrpMemLimit")
    # The smallest backlog of my own: the next goes to the other account.
    second = bed.sbatch(*SMALL, policy=SEED)
    assert {bed.where(result.job), bed.where(second.job)} == {"clive/clive", "maigan/maigan"}


def test_own_backlog_refuse(bed: Bed) -> None:
    fill(bed, "clive", "320000M", "alice")
    fill(bed, "maigan", "640000M", "alice")
    before = bed.queue()
    result = bed.sbatch(*SMALL, policy=SEED + "own_backlog: refuse\n")
    assert (result.rc, result.out) == (75, b"")
    assert bed.queue() == before
    text = result.err.decode()
    assert text.startswith("sbatch-router: not submitted: your own jobs fill every account\n")
    assert "others" not in text
    assert re.search(r"(?m)^  clive/clive .*used 312\.5G \(312\.5G yours\)", text), text


def test_two_of_mine_at_once_do_not_take_one_place(bed: Bed) -> None:
    """The ledger: neither is in Slurm's answer when the other is decided."""
    fill(bed, "clive", "320000M")
    fill(bed, "maigan", "512000M")  # 128000M = 125G left
    started = [bed.popen(["sbatch", *GPU_JOB], policy=SEED) for _ in range(3)]
    done = [(p.communicate(timeout=60), p.returncode) for p in started]
    assert [rc for _, rc in done] == [0, 0, 0], done
    words = sorted(err.decode().split(":")[1].split()[0] for (_, err), _ in done)
    # One fits; behind it the others wait for alice's own job, and are told so.
    assert words == ["queued", "queued", "submitted"], done


def _requests(bed: Bed) -> Counter[str]:
    """What slurmctld was asked, by the name of the message."""
    text = bed.cluster.run("sdiag").stdout
    text = text[text.index("by message type") : text.index("by user")]
    found = re.findall(r"(\w+)\s*\(\s*\d+\)\s*count:(\d+)", text)
    return Counter({name: int(count) for name, count in found if "STATS" not in name})


def test_many_submissions_ask_slurm_once(bed: Bed) -> None:
    """One scontrol and one squeue a cache interval, however many submit.

    squeue makes two requests of it: it always looks at the partitions first.
    """
    env = {"XDG_RUNTIME_DIR": str(bed.private("run/once", "alice"))}
    held = ("-H", "--mem=1M", "--wrap", "true")
    bed.sbatch(*held, policy="version: 1\naccounts: [clive]\n", env=env)  # what is kept for hours
    policy = "version: 1\naccounts: [clive, maigan]\ncache: 1h\n"
    before = _requests(bed)
    started = [bed.popen(["sbatch", *held], policy=policy, env=env) for _ in range(10)]
    assert [(p.communicate(timeout=60), p.returncode)[1] for p in started] == [0] * 10
    asked = _requests(bed) - before
    assert asked.pop("REQUEST_SUBMIT_BATCH_JOB") == 10
    assert asked.pop("REQUEST_ASSOC_MGR_INFO") == 1
    assert set(asked) <= {"REQUEST_JOB_USER_INFO", "REQUEST_PARTITION_INFO"}
    assert max(asked.values(), default=0) <= 1


# -- what the user named ---------------------------------------------------------------------


def test_an_account_outside_the_policy_is_not_touched(bed: Bed) -> None:
    result = bed.sbatch("-A", "other", *SMALL, policy=SEED)
    assert (result.err, bed.where(result.job)) == (b"", "other/roomy")
    script = bed.write_script("other.sh", "#!/bin/sh\n#SBATCH -A other\nsleep 300\n")
    result = bed.sbatch(script, policy=SEED)
    assert (result.err, bed.where(result.job)) == (b"", "other/roomy")
    result = bed.sbatch(*SMALL, policy=SEED, env={"SBATCH_ACCOUNT": "other"})
    assert (result.err, bed.where(result.job)) == (b"", "other/roomy")


EXPLICIT = "explicit_account: {{cli: {0}, env: {0}, script: {0}}}\n"


def _named(bed: Bed, origin: str, policy: str) -> str:
    """Where a job goes that names clive on the command line, in the environment or a script."""
    script = bed.write_script("named.sh", "#!/bin/sh\n#SBATCH -A clive\nsleep 300\n")
    if origin == "cli":
        result = bed.sbatch("-A", "clive", *SMALL, policy=policy)
    elif origin == "env":
        result = bed.sbatch(*SMALL, policy=policy, env={"SBATCH_ACCOUNT": "clive"})
    else:
        result = bed.sbatch("--mem=1000M", script, policy=policy)
    return bed.where(result.job)


@pytest.mark.parametrize("origin", ["cli", "env", "script"])
def test_explicit_account(bed: Bed, origin: str) -> None:
    # With room in both: keep and prefer stay, override goes where there is most.
    assert _named(bed, origin, SEED + EXPLICIT.format("keep")) == "clive/clive"
    assert _named(bed, origin, SEED + EXPLICIT.format("prefer")) == "clive/clive"
    assert _named(bed, origin, SEED + EXPLICIT.format("override")) == "maigan/maigan"
    bed.cluster.scancel_all()
    fill(bed, "clive", "319000M")
    assert _named(bed, origin, SEED + EXPLICIT.format("keep")) == "clive/clive"
    assert _named(bed, origin, SEED + EXPLICIT.format("prefer")) == "maigan/maigan"


def test_B46_environment_beats_script(bed: Bed) -> None:
    policy = "version: 1\naccounts: [lab-a, lab-b]\ncache: 0\n"
    policy += "explicit_account: {cli: keep, env: prefer, script: prefer}\n"
    script = bed.write_script("b46.sh", "#!/bin/sh\n#SBATCH -A lab-a\nsleep 300\n")
    env = {"SBATCH_ACCOUNT": "lab-b", "SLURM_ACCOUNT": "x", "SALLOC_ACCOUNT": "y"}
    explained = bed.explain("--mem=1G", str(script), user="tess", policy=policy, env=env)
    assert explained["request"]["account"] == {"value": "lab-b", "origin": "env"}
    assert (explained["account"], explained["action"]) == ("lab-b", "route")
    result = bed.sbatch("--mem=1G", script, user="tess", policy=policy, env=env)
    assert bed.where(result.job) == "lab-b/roomy"


def test_account_names_know_no_case(bed: Bed) -> None:
    result = bed.sbatch("-A", "CLIVE", *SMALL, policy=SEED)
    assert (result.err, bed.where(result.job)) == (b"", "clive/clive")


def test_account_and_qos_win_over_all_that_is_given(bed: Bed) -> None:
    """The chosen account is put where it beats the script, the environment and -- ."""
    policy = SEED + EXPLICIT.format("override")
    script = bed.write_script(
        "beaten.sh", "#!/bin/sh\n#SBATCH --account=clive\n#SBATCH --mem=1000M\nsleep 300\n"
    )
    env = {"SBATCH_ACCOUNT": "clive"}
    for args in (("-Aclive", "--", script, "-A", "clive"), (script, "--account", "clive")):
        job = bed.sbatch(*args, policy=policy, env=env).job
        assert bed.where(job) == "maigan/maigan"


# -- unlimited, zero, unknown ----------------------------------------------------------------


def test_B07_unlimited_zero_and_unknown_are_three_things(bed: Bed) -> None:
    policy = """\
version: 1
accounts:
  - {name: lab-a, qos: [nogpu, roomy]}
cache: 0
"""
    explained = bed.explain("--gres=gpu:1", "--mem=1G", *SMALL[1:], user="tess", policy=policy)
    nogpu, roomy = explained["candidates"]
    assert (nogpu["verdict"], nogpu["reason"]) == ("never", "QOSGrpGRES")
    zero = [c for c in nogpu["limits"] if c["tres"] == "gres/gpu"]
    assert [(c["limit"], c["used"], c["requested"]) for c in zero] == [(0, 0, 1)]
    assert nogpu["headroom"]["gres/gpu"] == 0
    # No limit at all: no check of it, and null is left.
    assert (roomy["verdict"], roomy["headroom"]["gres/gpu"]) == ("fits", None)
    assert [c for c in roomy["limits"] if c["tres"] == "gres/gpu"] == []
    # As text: a refusal says 0 where the limit is 0.
    only_zero = policy.replace(", roomy", "")
    gpu = ("--gres=gpu:1", *SMALL)
    result = bed.sbatch(*gpu, user="tess", policy=only_zero)
    assert result.rc == 77
    assert (
        "  lab-a/nogpu  never fits: gres/gpu limit 0, used 0, asked 1 [QOSGrpGRES]" in result.lines
    )
    result = bed.sbatch(*gpu, user="tess", policy=policy.replace("nogpu, ", ""))
    assert result.rc == 0
    assert "unlimited" not in result.err.decode()
    # slurmctld's own word on the zero: it pends for this reason.
    job = bed.sbatch(*gpu, "-q", "nogpu", user="tess", shim=False).job
    ignore = ("None", "", "Priority")
    assert bed.cluster.wait_reason(job, ignore=ignore) == ("PENDING", "QOSGrpGRES")


def test_unknown_is_neither_zero_nor_unlimited(bed: Bed) -> None:
    env = {"PATH": bed.faulty("silent", "scontrol", "sacctmgr", "squeue")}
    env["XDG_RUNTIME_DIR"] = str(bed.private("run/unknown", "alice"))
    explained = bed.explain(*SMALL, env=env)
    assert explained["action"] == "pass"
    assert [c["verdict"] for c in explained["candidates"]] == ["unknown", "unknown", "blocked"]
    assert explained["candidates"][0]["limits"] == []


# -- when_full -------------------------------------------------------------------------------


def test_when_full_queue_submits_where_least_is_missing(bed: Bed) -> None:
    fill(bed, "clive", "320000M")
    fill(bed, "maigan", "635000M")
    result = bed.sbatch("--mem=10G", "--wrap", "sleep 300", policy=QUEUE)
    assert bed.where(result.job) == "maigan/maigan"
    assert result.lines == ["sbatch-router: queued on maigan/maigan: every account is full"]
    assert bed.cluster.wait_reason(result.job) == ("PENDING", "QOSGrpMemLimit")


def test_when_full_wait_until_there_is_room(bed: Bed) -> None:
    fill(bed, "clive", "320000M")
    held = fill(bed, "maigan", "640000M")
    waiting = bed.popen(["sbatch", *SMALL], policy=SEED + "when_full: {wait: 30s}\n")
    line = waiting.stderr.readline()
    assert line == (b"sbatch-router: every account is full; waiting up to 30 s (when_full: wait)\n")
    assert waiting.poll() is None
    bed.cluster.run("scancel", held)
    out, err = waiting.communicate(timeout=30)
    assert waiting.returncode == 0
    job = out.decode().split()[-1]
    assert bed.where(job) == "maigan/maigan"
    assert err.startswith(b"sbatch-router: submitted to maigan/maigan: ")


def test_when_full_wait_gives_up(bed: Bed) -> None:
    fill(bed, "clive", "320000M")
    fill(bed, "maigan", "640000M")
    before = bed.queue()
    began = time.monotonic()
    result = bed.sbatch(*SMALL, policy=SEED + "when_full: {wait: 2s}\n")
    took = time.monotonic() - began
    assert (result.rc, result.out) == (75, b"")
    assert 2 <= took < 5
    assert bed.queue() == before


# -- arrays, associations, enforcement -------------------------------------------------------


def test_an_array_is_one_job_of_many_tasks(bed: Bed) -> None:
    # Three tasks of 125G: only maigan takes all at once.
    result = bed.sbatch("--array=0-2", "--mem=125G", "--wrap", "sleep 300", policy=SEED)
    assert bed.where(result.job) == "maigan/maigan"
    # Three more: 250G are left there, 312.5G in clive; two tasks of them can start.
    explained = bed.explain("--array=0-2", "--mem=125G", "--wrap", "sleep 300")
    assert explained["request"]["array_tasks"] == 3
    assert verdicts(explained)["maigan"][0] == "waits_mine"
    assert {c["account"]: c["starts"] for c in explained["candidates"]}["clive"] == 2


def test_no_association_with_one_of_the_accounts(bed: Bed) -> None:
    """carol is in maigan alone."""
    fill(bed, "maigan", "630000M")
    explained = bed.explain(*SMALL, user="carol")
    clive = explained["candidates"][0]
    assert (clive["verdict"], clive["why"]) == (
        "not_allowed", "carol has no association with account clive",
    )  # fmt: skip
    result = bed.sbatch(*SMALL, user="carol", policy=SEED)
    assert (result.err, bed.where(result.job)) == (b"", "maigan/maigan")
    bed.wait_running(result.job)
    fill(bed, "maigan", "9000M")
    result = bed.sbatch("--mem=2000M", *SMALL[1:], user="carol", policy=SEED)
    assert (result.rc, result.out) == (75, b"")
    assert "  clive/clive    carol has no association with account clive" in result.lines


def test_without_enforced_limits_everything_passes_through(bed: Bed) -> None:
    fill(bed, "clive", "320000M")
    env = {"XDG_RUNTIME_DIR": str(bed.private("run/unenforced", "alice"))}
    bed.cluster.reconfigure(AccountingStorageEnforce="associations")
    try:
        result = bed.sbatch(*SMALL, policy=SEED, env=env)
        assert (result.err, bed.where(result.job)) == (b"", "clive/clive")
        assert bed.explain(*SMALL, env=env)["why"] == (
            "AccountingStorageEnforce has no limits: no account's limit binds here"
        )
    finally:
        bed.cluster.reconfigure(AccountingStorageEnforce=None)


def test_explain_promises_nothing_and_logs_nothing(bed: Bed) -> None:
    """It says what would be done, as often as asked, and changes nothing by it."""
    run = bed.private("run/explain", "alice")
    home = bed.private("home-explain", "alice")
    env = {"XDG_RUNTIME_DIR": str(run), "HOME": str(home)}
    policy = SEED.replace("cache: 0", "cache: 1h")
    bed.sbatch("-H", *SMALL, policy=policy, env=env)
    ledger = (run / "sbatch-router" / "ledger").read_bytes()
    log = (home / ".local/state/sbatch-router/decisions.jsonl").read_bytes()
    said = [bed.explain(*SMALL, policy=policy, env=env) for _ in range(3)]
    for one in said:
        one["snapshot"].pop("age_seconds")
    assert said[1:] == said[:1] * 2
    assert (run / "sbatch-router" / "ledger").read_bytes() == ledger
    assert (home / ".local/state/sbatch-router/decisions.jsonl").read_bytes() == log
    # And what it says is what is done.
    result = bed.sbatch(*SMALL, policy=policy, env=env)
    assert bed.where(result.job) == f"{said[0]['account']}/{said[0]['qos']}"


def test_a_job_kept_in_its_account_is_seen_by_the_next(bed: Bed) -> None:
    """Within the life of one snapshot: Slurm has not shown it to us yet."""
    env = {"XDG_RUNTIME_DIR": str(bed.private("run/kept", "alice"))}
    policy = "version: 1\naccounts: [clive, maigan]\nrules: [{order: [listed]}]\ncache: 1h\n"
    script = str(bed.script)
    first = bed.sbatch("--mem=1G", script, policy=policy, env=env)
    assert bed.where(first.job) == "clive/clive"
    kept = bed.sbatch("-A", "clive", "--mem=300G", script, policy=policy, env=env)
    assert (kept.err, bed.where(kept.job)) == (b"", "clive/clive")
    assert bed.where(bed.sbatch("--mem=100G", script, policy=policy, env=env).job) == (
        "maigan/maigan"
    )
    # One that can never run there takes no room.
    bed.sbatch("-A", "maigan", "--mem=900G", script, policy=policy, env=env)
    assert bed.where(bed.sbatch("--mem=100G", script, policy=policy, env=env).job) == (
        "maigan/maigan"
    )


def test_jobs_that_came_past_us_are_mine_and_not_others(bed: Bed) -> None:
    """slurmctld counts more jobs of mine than we know of: squeue is asked again."""
    env = {"XDG_RUNTIME_DIR": str(bed.private("run/past", "alice"))}
    policy = "version: 1\naccounts: [clive]\ncache: 3s\n"
    script = str(bed.script)
    first = bed.sbatch("--mem=10G", script, policy=policy, env=env)
    past = bed.sbatch("--mem=64G", script, policy=policy, env={**env, "SBATCH_ROUTER": "off"})
    bed.wait_running(first.job, past.job)
    time.sleep(3.2)
    last = bed.sbatch("--mem=250G", script, policy=policy, env=env)
    assert last.lines == [], last
    assert bed.where(last.job) == "clive/clive"
