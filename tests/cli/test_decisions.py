"""The log read back, and decisions brought together with jobs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbatch_router.cli import _decisions
from sbatch_router.cli._decisions import BY_ID, LIKELY, SURE, Entry, match, read_log, rotate
from sbatch_router.cli._sacct import JobRow

BASE = 1_800_000_000.0


def line(at: float = BASE, **fields: Any) -> str:
    from datetime import datetime, timezone

    stamp = datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f") + "Z"
    record = {
        "event": "decision", "level": "info", "timestamp": stamp, "pid": 10, "action": "route",
        "account": "clive", "qos": "clive", "partition": "main", "rule": "r", "why": "fits now",
        "changed": False, "exit_code": 0, "job_name": "", "tres": {"cpu": 1, "mem": 1000},
        "array_tasks": 1, "verdicts": {"clive/clive": "fits"}, "reasons": {},
    }  # fmt: skip
    return json.dumps({**record, **fields}) + "\n"


def test_reading(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    (tmp_path / "decisions.jsonl.1").write_text(line(BASE - 50, job_name="old"))
    path.write_text(
        line(BASE, job_name="a")
        + line(BASE + 5, pid=11, job_name="b")
        + line(BASE + 6, event="submitted", pid=10, job_id="77", cluster="")
        + line(BASE + 7, event="another program's line")
    )
    log = read_log(str(path))
    assert [(e.job_name, e.job_id) for e in log.entries] == [("old", ""), ("a", "77"), ("b", "")]
    assert (log.bad, log.troubles) == (0, ())
    assert [e.job_name for e in read_log(str(path), BASE + 1).entries] == ["b"]


def test_broken_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    path.write_bytes(
        b"\n".join(
            [
                b"not json", b"[1]", b"{}", b'{"event": "decision"}', b"\xff\xfe\x00",
                b'{"a":' * 5000, line(action="dance").encode().strip(), b"",
                line(tres=[1], verdicts=3, array_tasks="x", pid=None, changed="no").encode(),
                line().encode()[:50],
            ]
        )
    )  # fmt: skip
    log = read_log(str(path))
    assert log.bad == 8
    (entry,) = log.entries
    assert (entry.tres, entry.verdicts, entry.array_tasks, entry.changed) == ({}, {}, 1, None)


def test_no_log_and_no_file(tmp_path: Path) -> None:
    assert read_log(str(tmp_path / "none")) == ((), 0, (), {})
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "fifo")
    (tmp_path / "dir").mkdir()
    for name, why in (("fifo", "not a regular file"), ("link", "Too many levels"), ("dir", "")):
        log = read_log(str(tmp_path / name))
        assert log.entries == ()
        assert len(log.troubles) == 1
        assert why in log.troubles[0]


def test_a_huge_log_is_read_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "decisions.jsonl"
    path.write_text("".join(line(BASE + n) for n in range(2000)) + "x" * 3_000_000 + "\n" + line())
    monkeypatch.setattr(_decisions, "MOST_BYTES", 3_200_000)
    log = read_log(str(path))
    assert 0 < len(log.entries) < 2000
    assert log.bad == 3, "a line of 3 MB is three pieces"
    assert log.troubles == (f"{path}: only its last 3 MiB were read",)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=2000), st.integers(0, 600))
def test_no_log_breaks_it(tmp_path_factory: pytest.TempPathFactory, junk: bytes, cut: int) -> None:
    path = tmp_path_factory.mktemp("log") / "decisions.jsonl"
    path.write_bytes(line().encode()[:cut] + junk + line().encode())
    read_log(str(path))


def test_rotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "decisions.jsonl"
    assert not rotate(str(path))
    path.write_text("1")
    assert not rotate(str(path))
    monkeypatch.setattr(_decisions, "ROTATE_BYTES", 0)
    assert rotate(str(path))
    path.write_text("2")
    assert rotate(str(path))
    assert not path.exists()
    assert (tmp_path / "decisions.jsonl.1").read_text() == "2"
    path.symlink_to("/dev/null")
    assert not rotate(str(path))


# -- matching --------------------------------------------------------------------------------


def entry(at: float = BASE, **fields: Any) -> Entry:
    plain = Entry(
        at, 1, "route", "clive", "clive", "", "", True, 0, "", {"cpu": 1, "mem": 1000}, 1, {}, {}
    )
    return plain._replace(**fields)


def job(ident: int, submit: float = BASE, **fields: Any) -> JobRow:
    plain = JobRow(
        str(ident), "clive", "clive", "main", "x", submit, submit + 5, None, "RUNNING", "",
        {"cpu": 1, "mem": 1000, "node": 1}, "0:0",
    )  # fmt: skip
    return plain._replace(**fields)


def found(entries: list[Entry], jobs: list[JobRow]) -> list[Any]:
    return [(m.job.id, m.match) if m else None for m in match(entries, jobs)]


def test_one_to_one() -> None:
    assert found([entry()], [job(1)]) == [("1", SURE)]


@pytest.mark.parametrize(
    ("fields", "other"),
    [
        ({}, {"account": "maigan"}),
        ({}, {"qos": "maigan"}),
        ({"job_name": "y"}, {}),
        ({"array_tasks": 3}, {}),
        ({}, {"tasks": 3}),
        ({}, {"tres": {"cpu": 1, "mem": 2000}}),
        ({"tres": {"mem": 1000, "gres/gpu": 1}}, {}),
        ({}, {"submit": BASE - 10}),
        ({}, {"submit": BASE + 40}),
        ({"action": "refuse"}, {}),
    ],
)
def test_what_does_not_fit(fields: dict[str, Any], other: dict[str, Any]) -> None:
    assert found([entry(**fields)], [job(1, **other)]) == [None]


@pytest.mark.parametrize(
    ("fields", "other"),
    [
        ({"tres": {}}, {}),
        ({}, {"tres": {}}),
        ({"tres": {"mem": 100000}}, {"tres": {"mem": 99994}}),  # sacct's 97.65G
        ({"tres": {"mem": 0}}, {"tres": {"mem": 4000}}),
        ({"account": "", "qos": "", "action": "pass"}, {"account": "any"}),
        ({}, {"submit": BASE - 1}),
        ({"array_tasks": 3}, {"tasks": 3}),
        ({"tres": {"cpu": 4, "mem": 1000}}, {}),  # CPUs are settled at the start
    ],
)
def test_what_fits(fields: dict[str, Any], other: dict[str, Any]) -> None:
    assert found([entry(**fields)], [job(1, **other)]) == [("1", SURE)]


def test_a_rerouted_job_is_found_where_it_was() -> None:
    moved = job(1, account="maigan", qos="maigan-b")
    (became,) = match([entry()], [moved], {"1": ("clive", "clive")})
    assert became == (moved, SURE)


def test_a_job_of_another_cluster_is_none_of_these() -> None:
    elsewhere = entry(action="pass", account="", qos="", why="names a cluster (--clusters); only")
    assert found([elsewhere], [job(1)]) == [None]


def test_twins_are_likely_and_in_order() -> None:
    entries = [entry(BASE), entry(BASE + 1), entry(BASE + 2)]
    jobs = [job(3, BASE + 2), job(1, BASE), job(2, BASE + 1)]
    assert found(entries, jobs) == [("1", LIKELY), ("2", LIKELY), ("3", LIKELY)]
    # One sbatch failed: there is no way to know which.
    assert found(entries, jobs[:2]) == [("1", LIKELY), ("3", LIKELY), None]


def test_an_earlier_job_is_not_taken_for_a_later_one() -> None:
    assert found([entry()], [job(1, BASE - 1), job(2, BASE + 1)]) == [("2", SURE)]


def test_twins_that_lie_apart_are_sure() -> None:
    entries = [entry(BASE), entry(BASE + 5)]
    assert found(entries, [job(1, BASE + 1), job(2, BASE + 6)]) == [("1", SURE), ("2", SURE)]
    # A slow controller: the first may be either's.
    assert found(entries, [job(1, BASE + 6), job(2, BASE + 6)]) == [("1", LIKELY), ("2", LIKELY)]


def test_names_tell_twins_apart() -> None:
    entries = [entry(job_name="a"), entry(job_name="b")]
    assert found(entries, [job(2, name="a"), job(1, name="b")]) == [("2", SURE), ("1", SURE)]


def test_a_logged_id_is_taken_and_not_given_away() -> None:
    entries = [entry(BASE), entry(BASE + 1, job_id="1")]
    assert found(entries, [job(1)]) == [None, ("1", BY_ID)]
    assert found(entries, [job(1), job(2)]) == [("2", SURE), ("1", BY_ID)]
    assert found([entry(job_id="9")], [job(1)]) == [None]


def test_each_job_once() -> None:
    entries = [entry(BASE + n) for n in range(30)]
    jobs = [job(n, BASE + n) for n in range(1, 20)]
    assert found(entries[:1], jobs) == [("1", LIKELY)]
    ids = [m[0] for m in found(entries, jobs) if m]
    assert len(ids) == len(set(ids)) == 19
