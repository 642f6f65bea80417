"""`history`: what it says of made-up logs, and of real jobs."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from sbatch_router import policyfile
from sbatch_router.cli import _avoided, _decisions, _summary, history
from sbatch_router.cli._decisions import Became, Entry
from sbatch_router.cli._sacct import JobRow

from .conftest import Cli, until

DAY = 86400.0
BASE = 1_800_000_000.0


def entry(at: float, clive: str = "waits_others", **fields: Any) -> Entry:
    return Entry(
        at, 1, "route", "maigan", "maigan", "", "fits now", True, 0, "", {"cpu": 1}, 1,
        {"clive/clive": clive, "maigan/maigan": "fits"}, {"clive/clive": "QOSGrpMemLimit"},
    )._replace(**fields)  # fmt: skip


def ran(ident: int, submit: float, wait: float | None, **fields: Any) -> Became:
    start = None if wait is None else submit + wait
    row = JobRow(
        str(ident), "maigan", "maigan", "main", "x", submit, start, None, "RUNNING", "", {}, "0:0"
    )
    return Became(row._replace(**fields), "sure")


def told(*became: Any, default: str = "clive") -> _summary.Told:
    return _summary.Told(became, default)


def test_avoided_waiting_is_the_least_it_can_be() -> None:
    # Full at 0, 100 and 250; free at 400; full at 500 and never looked at again.
    entries = [
        entry(BASE), entry(BASE + 100), entry(BASE + 250), entry(BASE + 400, "fits"),
        entry(BASE + 500),
    ]  # fmt: skip
    jobs = [ran(n, e.at, 10) for n, e in enumerate(entries)]
    found = _summary.summarise(entries, told(*jobs), BASE + 1000)
    assert (found.moved, list(found.waits)) == (5, [10] * 5)
    # 240 + 140 for the first two; the third was the last in its row; the fifth stands alone.
    assert (found.avoided_jobs, found.avoided_seconds) == (4, 380)
    assert _summary.summarise(entries, told(*jobs, default=""), 0).avoided_jobs == 0
    assert _summary.summarise(entries, told(*jobs, default="other"), 0).avoided_jobs == 0


def test_the_place_is_where_the_job_would_have_gone() -> None:
    """Not the default account, where a script or a variable named another."""
    other = {"maigan/maigan": "fits", "clive/clive": "fits", "brusko/brusko": "waits_others"}
    entries = [
        entry(BASE + at, unrouted="brusko/brusko", verdicts=other, reasons={"brusko/brusko": "R"})
        for at in (0, 100)
    ]
    entries.append(entry(BASE + 200, "fits", unrouted="clive/clive"))
    entries.append(entry(BASE + 300, unrouted="dept/normal"))
    entries.append(entry(BASE + 400, "never", unrouted="clive/clive"))
    jobs = [ran(n, e.at, 10) for n, e in enumerate(entries)]
    found = _summary.summarise(entries, told(*jobs), BASE + 1000)
    assert found.instead == {"full": 2, "room": 1, "not_known": 1, "never": 1}
    assert found.full_reasons == {"R": 2}
    assert (found.avoided_jobs, found.avoided_seconds, found.guessed) == (2, 90, 0)


def test_only_jobs_that_asked_for_no_more_show_that_it_was_still_full() -> None:
    def asked(at: float, mem: int, **more: Any) -> Entry:
        return entry(BASE + at, unrouted="clive/clive", tres={"mem": mem}, **more)

    entries = [asked(0, 100), asked(10, 50), asked(20, 200), asked(30, 60, changed=False)]
    instead = [_avoided.unrouted(e, "") for e in entries]
    assert _avoided.full_until(entries, instead) == {0: BASE + 30, 1: BASE + 10, 2: BASE + 30}
    # A QOS of the same account that has room is another place.
    entries[1] = asked(10, 50, verdicts={"clive/clive": "waits_others", "clive/clive-b": "fits"})
    assert _avoided.full_until(entries, instead)[0] == BASE + 30
    entries[3] = asked(30, 60, verdicts={"clive/clive": "fits"}, changed=False)
    assert _avoided.full_until(entries, instead)[0] == BASE + 10


def test_a_move_that_was_worth_nothing_is_told() -> None:
    entries = [entry(BASE + n, "fits", unrouted="clive/clive") for n in range(3)]
    pending = ran(3, BASE + 2, None, state="PENDING", reason="Priority")
    jobs = [ran(1, BASE, 59), ran(2, BASE + 1, 60), pending]
    found = _summary.summarise(entries, told(*jobs), BASE + 100)
    assert (found.in_vain, found.avoided_jobs, found.avoided_seconds) == (2, 0, 0)
    words = history._moved_words(found)
    assert (
        words[1] == "the places where sbatch alone would have sent them were then: 3 free as well"
    )
    assert words[2].startswith("2 moved jobs waited a minute or longer although there was room ")


def test_lines_of_an_older_version() -> None:
    entries = [entry(BASE), entry(BASE + 100)]
    found = _summary.summarise(entries, told(ran(1, BASE, 0), ran(2, BASE + 100, 0)), BASE + 200)
    assert (found.guessed, found.avoided_seconds) == (2, 100)
    assert history._moved_words(found)[-1] == (
        "(2 jobs logged by an older version: the place is taken to be clive, your default account)"
    )
    unknown = _summary.summarise(entries, told(None, None, default=""), BASE + 200)
    assert (unknown.instead, unknown.avoided_jobs) == ({"not_known": 2}, 0)


def test_only_moved_jobs_that_started_count() -> None:
    entries = [entry(BASE, changed=False), entry(BASE + 1), entry(BASE + 9)]
    jobs = [ran(1, BASE, 0), ran(2, BASE + 1, None, state="PENDING", reason="Priority"), None]
    found = _summary.summarise(entries, told(*jobs), BASE + 500)
    assert (found.moved, list(found.waits), found.avoided_jobs) == (2, [], 0)
    assert found.stuck == [("2", "Priority", 499.0)]


def many(share: float, number: int, days: float) -> list[Entry]:
    full = round(number * share)
    return [
        entry(BASE + n * days * DAY / max(1, number - 1), "waits_others" if n < full else "fits")
        for n in range(number)
    ]


@pytest.mark.parametrize(
    ("share", "number", "days", "chronic"),
    [(1.0, 10, 4, True), (0.8, 50, 30, True), (0.7, 50, 30, False), (1.0, 9, 30, False),
     (1.0, 500, 1, False)],
)  # fmt: skip
def test_chronically_full(share: float, number: int, days: float, chronic: bool) -> None:
    assert [c.account for c in _summary.chronic(many(share, number, days))] == (
        ["clive"] if chronic else []
    )


def test_an_account_with_room_in_its_burst_is_not_full() -> None:
    entries = [
        e._replace(verdicts={"clive/clive": "waits_others", "clive/clive-b": "fits"})
        for e in many(1.0, 20, 10)
    ]
    assert _summary.chronic(entries) == []
    never = [e._replace(verdicts={"clive/clive": "never"}) for e in entries]
    assert _summary.chronic(never) == []


def test_the_lines_to_add_are_a_policy() -> None:
    (found,) = _summary.chronic(many(0.9, 20, 10))
    lines = ["version: 1", "blocked:", *found.yaml(BASE + 10 * DAY)]
    (blocked,) = policyfile.loads("\n".join(lines)).blocked
    assert (blocked.account, blocked.since, blocked.review) == ("clive", "2027-01-25", "2027-04-25")
    assert blocked.reason.startswith("full of others' jobs in 18 of 20 decisions, 2027-01-15 to ")
    assert blocked.reason.endswith(" (QOSGrpMemLimit)")


@pytest.mark.parametrize(
    ("became", "words"),
    [
        (ran(1, BASE, 12), "started after 12s, running"),
        (ran(1, BASE, 0, state="COMPLETED"), "started after 0s, completed"),
        (
            ran(1, BASE, None, state="PENDING", reason="QOSGrpMemLimit"),
            "waiting for 1m40s: QOSGrpMemLimit",
        ),
        (
            ran(1, BASE, None, state="CANCELLED", end=BASE + 60, reason="QOSGrpCpuLimit"),
            "never started: cancelled after 1m, waited for QOSGrpCpuLimit",
        ),
        (None, "no job found"),
    ],
)
def test_outcomes(became: Any, words: str) -> None:
    found = history.outcome(entry(BASE), became, told(became), BASE + 100)
    assert found[0] == words


@pytest.mark.parametrize(
    ("text", "start"), [("12h", BASE - 43200), ("2w", BASE - 14 * DAY), ("all", 0.0)]
)
def test_since(text: str, start: float) -> None:
    assert history._since(text, BASE) == start


@pytest.mark.parametrize("text", ["yesterday", "", "5y", "-3d", "2026-13-01"])
def test_since_that_is_nothing(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        history._since(text, BASE)


# -- on a cluster ----------------------------------------------------------------------------


@pytest.mark.cluster
def test_nothing_decided_yet(cli: Cli) -> None:
    found = cli.run("history")
    assert (found.rc, found.out) == (0, "")
    assert found.err.startswith("nothing was decided since ")
    assert found.err.endswith("; see `sbatch-router doctor`\n")
    data = json.loads(cli.run("history", "--json").out)
    assert (data["decisions"], data["summary"]["moved"]) == ([], 0)
    assert cli.run("history", env={"HOME": ""}).rc == 1
    bad = cli.run("history", "--since", "yesterday")
    assert (bad.rc, bad.out) == (2, "")
    assert "expected 12h, 7d, 4w, a date such as 2026-03-02, or all" in bad.err


@pytest.mark.cluster
def test_what_became_of_real_jobs(cli: Cli) -> None:
    cli.policy()
    cli.cluster.hold("bob", "-A", "clive", "--mem=300G", "-c2")
    moved = cli.sbatch("--mem=20G", "-J", "moved", "--wrap", "sleep 300")
    assert moved.rc == 0, moved
    kept = cli.sbatch("-A", "clive", "--mem=20G", "-J", "kept", "--wrap", "sleep 300")
    array = cli.sbatch("--mem=1G", "--array=1-3", "-J", "array", "--wrap", "sleep 300")
    assert cli.sbatch("--mem=900G", "--wrap", "true").rc == 77
    ids = [done.out.split()[-1] for done in (moved, kept, array)]
    cli.cluster.wait_reason(ids[1])
    cli.cluster.wait_until(
        lambda: "R" in cli.cluster.run("squeue", "-h", "-j", ids[0], "-o", "%t").stdout
    )

    def settled() -> Any:
        data = json.loads(cli.run("history", "--json").out)
        jobs = [d["job"] for d in data["decisions"]]
        states = [job and job["state"] for job in jobs]
        return data if states == ["RUNNING", "PENDING", "RUNNING", None] else None

    data = until(settled)
    first, second, third, fourth = data["decisions"]
    assert (first["changed"], first["account"], first["job"]["match"]) == (True, "maigan", "sure")
    full = {"place": "clive/clive", "verdict": "waits_others", "reason": "QOSGrpMemLimit"}
    # A task of the array would fit beside bob's job, but for the kept job, which waits there.
    mine = {"place": "clive/clive", "verdict": "waits_mine", "reason": ""}
    assert [d["unrouted"] for d in data["decisions"]] == [full, None, mine, None]
    assert data["summary"]["moved_from"] == {"full": 1, "own_jobs": 1}
    assert [d["job"] and d["job"]["id"] for d in data["decisions"]] == [*ids, None]
    assert first["job"]["waited_seconds"] is not None
    assert second["job"]["reason"] == "QOSGrpMemLimit"
    assert (third["array_tasks"], fourth["exit_code"]) == (3, 77)
    assert data["summary"]["actions"] == {"route": 2, "keep": 1, "refuse": 1}
    assert data["summary"]["moved_from_full_reasons"] == {"QOSGrpMemLimit": 1}
    shown = cli.run("history", "--ascii")
    assert (shown.rc, shown.err) == (0, "")
    assert max(map(len, shown.out.splitlines())) <= 80
    assert f"{ids[0]}  sent to maigan/maigan *  started after " in shown.out
    text = " ".join(shown.out.split())
    assert "not clive/clive: full of others' jobs [QOSGrpMemLimit]" in text
    assert "clive/clive unable to run it at all [QOSGrpMemLimit]" in text
    assert "were then: 1 full of others' jobs (QOSGrpMemLimit 1), 1 busy with your own" in text
    assert f"{ids[1]}  kept in clive" in shown.out
    assert "QOSGrpMemLimit" in shown.out
    assert "4 decisions: 2 sent, 1 kept, 1 refused\n" in shown.out
    short = cli.run("history", "-n", "1")
    assert "(3 earlier: -n 0 shows all)" in short.out


@pytest.mark.cluster
def test_a_broken_and_a_large_log(cli: Cli) -> None:
    cli.policy()
    assert cli.sbatch("--mem=1G", "--wrap", "true").rc == 0
    log = cli.log()
    good = log.read_text()
    log.write_text("garbage\n" + good[:40] + "\n" + good)
    found = cli.run("history")
    assert found.rc == 0
    assert found.err == f"warning: {log}: 2 lines left out: no decision\n"
    assert "1 decision: 1 sent" in found.out
    log.write_text(good * (_decisions.ROTATE_BYTES // len(good) + 2))
    os.chown(log, cli.cluster.uid("alice"), -1)
    assert cli.run("history", "-n", "1").rc == 0
    assert not log.exists()
    assert log.with_name("decisions.jsonl.1").exists()
    again = cli.run("history", "--json", "-n", "1")
    assert json.loads(again.out)["log"]["decisions"] > 1000


@pytest.mark.cluster
def test_without_accounting(cli: Cli) -> None:
    cli.policy()
    assert cli.sbatch("--mem=1G", "--wrap", "true").rc == 0
    found = cli.run("history", env={"PATH": "/nowhere"})
    assert found.rc == 0
    assert found.err == (
        "warning: what became of ended jobs is not known: sacct was not found in PATH; see "
        "`sbatch-router doctor`\n"
        "warning: what became of waiting jobs is not known: squeue was not found in PATH; see "
        "`sbatch-router doctor`\n"
    )
    assert "not known" in found.out


@pytest.mark.cluster
def test_the_log_of_another_time_zone(cli: Cli) -> None:
    cli.policy()
    done = cli.sbatch("--mem=1G", "-J", "zone", "--wrap", "sleep 300")

    def matched() -> Any:
        env = {"TZ": "Pacific/Kiritimati", "SLURM_TIME_FORMAT": "relative"}
        (one,) = json.loads(cli.run("history", "--json", env=env).out)["decisions"]
        return one["job"]

    assert until(matched)["id"] == done.out.split()[-1]


@pytest.mark.cluster
def test_a_log_that_cannot_be_read_is_no_empty_one(cli: Cli) -> None:
    cli.policy()
    assert cli.sbatch("--mem=1G", "--wrap", "true").rc == 0
    cli.log().chmod(0)
    for option in ((), ("--json",)):
        found = cli.run("history", *option)
        assert (found.rc, found.out) == (1, "")
        assert found.err == f"Error: {cli.log()}: Permission denied\n"
