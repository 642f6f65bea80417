"""Sharing items over accounts: the seed's numbers, and laws."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbatch_router import snakemake
from sbatch_router.core.assign import Job, Room, assign, pick, share, slots, spread
from sbatch_router.snakemake import AccountsError

CYCLES = [f"cyc{number:02d}" for number in range(1, 10)]

STATIC = {
    "resources": {
        "accounts": [
            {"name": "clive", "gpu_slots": 1, "cpu_slots": 4},
            {"name": "maigan", "gpu_slots": 2, "cpu_slots": 8},
        ]
    }
}
#: The seed's own smoke test line, character by character.
SMOKE = (
    '[{"name":"clive","gpu_avail":0,"cpu_avail":0,"mem_avail_gb":0},'
    '{"name":"maigan","gpu_avail":2,"cpu_avail":8,"mem_avail_gb":625}]'
)
HEALTHY = [
    {"name": "clive", "gpu_avail": 1, "cpu_avail": 80, "mem_avail_gb": 312.5},
    {"name": "maigan", "gpu_avail": 2, "cpu_avail": 160, "mem_avail_gb": 625},
]
#: bob's 256 GB job on clive.
JAM = [{**HEALTHY[0], "cpu_avail": 72, "mem_avail_gb": 56.5}, HEALTHY[1]]


@pytest.fixture(autouse=True)
def _no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing live is known unless a test says so."""
    monkeypatch.setattr(snakemake, "_asked", lambda: ([], frozenset()))


def live(accounts: Any, **more: Any) -> dict[str, Any]:
    return {**STATIC, "live_accounts": accounts, **more}


def test_both_healthy_split_three_and_six() -> None:
    found = snakemake.assign(CYCLES, live(HEALTHY), mem_gb=125)
    assert (found.count("clive"), found.count("maigan")) == (3, 6)
    # Mixed, not in two blocks.
    assert [c for c, a in zip(CYCLES, found) if a == "clive"] == ["cyc02", "cyc05", "cyc08"]


def test_static_split_without_live_data() -> None:
    found = snakemake.assign(CYCLES, STATIC)
    assert (found.count("clive"), found.count("maigan")) == (3, 6)


def test_the_seeds_smoke_line() -> None:
    assert snakemake.assign(CYCLES, live(SMOKE)) == ["maigan"] * 9
    assert snakemake.pick(live(SMOKE), cpu=4, mem_gb=62.5) == "maigan"
    assert snakemake.pick(live(SMOKE), cpu=4, mem_gb=62.5, gpus=1) == "maigan"


def test_memory_beside_the_gpu() -> None:
    assert snakemake.assign(CYCLES, live(JAM), gpus=1, mem_gb=125) == ["maigan"] * 9
    # What fits into 56.5 GB still uses clive's GPU.
    assert "clive" in snakemake.assign(CYCLES, live(JAM), gpus=1, mem_gb=56.5)
    assert snakemake.pick(live(JAM), mem_gb=125, gpus=1) == "maigan"


def test_a_gpu_that_waits_while_its_memory_is_gone() -> None:
    """No slot anywhere: the 125 GB jobs queue for maigan's GPUs, not for clive's memory."""
    accounts = [JAM[0], {**HEALTHY[1], "gpu_avail": 0}]
    assert set(snakemake.assign(CYCLES, live(accounts), mem_gb=125)) == {"maigan"}


def test_everything_full_falls_back_to_the_static_split() -> None:
    zero = [
        {"name": n, "gpu_avail": 0, "cpu_avail": 0, "mem_avail_gb": 0} for n in ("clive", "maigan")
    ]
    found = snakemake.assign(CYCLES, live(zero))
    assert (found.count("clive"), found.count("maigan")) == (3, 6)


def test_numbers_as_snakemake_hands_them_on() -> None:
    """Its --config parser (PyYAML's BaseLoader) leaves the numbers inside a list as text."""
    texts = [{key: str(value) for key, value in entry.items()} for entry in JAM]
    assert snakemake.assign(CYCLES, live(texts), mem_gb=125) == ["maigan"] * 9


def test_the_configs_list_narrows() -> None:
    more = [*HEALTHY, {"name": "third", "gpu_avail": 50, "cpu_avail": 500, "mem_avail_gb": 5000}]
    assert "third" not in snakemake.assign(CYCLES, live(more))
    assert set(snakemake.assign(CYCLES, {"live_accounts": more}, gpus=1)) >= {"third"}
    # If none of the listed ones is usable now, live data win.
    assert set(snakemake.assign(CYCLES, live([more[2]]))) == {"third"}


def test_accounts_that_are_not_live_are_not_used() -> None:
    """Blocked ones are left out of the live list."""
    assert snakemake.assign(CYCLES, live([HEALTHY[1]])) == ["maigan"] * 9


def test_blocked_accounts_leave_the_static_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snakemake, "_asked", lambda: ([], frozenset({"clive"})))
    assert snakemake.assign(CYCLES, STATIC) == ["maigan"] * 9
    monkeypatch.setattr(snakemake, "_asked", lambda: ([], frozenset({"clive", "maigan"})))
    with pytest.raises(AccountsError, match="blocked by the policy: clive, maigan"):
        snakemake.assign(CYCLES, STATIC)


def test_pick_without_live_data_takes_the_first_that_can() -> None:
    config = {
        "resources": {
            "accounts": [
                {"name": "cpu", "cpu_slots": 4},
                {"name": "gpu", "gpu_slots": 1, "mem_gb": 100},
                {"name": "big", "gpu_slots": 1, "mem_gb": 500},
            ]
        }
    }
    assert snakemake.pick(config, gpus=1) == "gpu"
    assert snakemake.pick(config, gpus=1, mem_gb=125) == "big"
    assert snakemake.pick(config) == "cpu"


def test_policy_limits_what_an_account_takes() -> None:
    only_cpu = [{**HEALTHY[0], "takes": ["cpu"]}, {**HEALTHY[1], "mem_avail_gb": 1}]
    assert set(snakemake.assign(CYCLES, live(only_cpu), gpus=1)) == {"maigan"}
    assert snakemake.pick(live(only_cpu), gpus=0) == "clive"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "no account to choose from"),
        ({"live_accounts": "[{'name': 'clive'}]"}, "is no JSON"),
        ({"live_accounts": {"clive": 1}}, "is no list"),
        ({"live_accounts": [{"gpu_avail": 1}]}, "an entry without a name"),
        ({"live_accounts": [{"name": "a", "mem_avail_gb": "much"}]}, "mem_avail_gb is no number"),
        ({"resources": {"accounts": {"clive": 1}}}, "is no list"),
    ],
)
def test_what_is_wrong_is_said(config: dict[str, Any], words: str) -> None:
    with pytest.raises(AccountsError, match=words):
        snakemake.assign(CYCLES, config)


@pytest.mark.parametrize("size", ["62.5", None, [1], float("nan"), float("inf")])
def test_a_size_that_is_no_number_is_said(size: Any) -> None:
    with pytest.raises(AccountsError, match=r"mem_gb: .* is no number"):
        snakemake.assign(CYCLES, STATIC, mem_gb=size)
    with pytest.raises(AccountsError, match=r"mem_gb: .* is no number"):
        snakemake.pick(STATIC, mem_gb=size)
    with pytest.raises(AccountsError, match=r"gpus: .* is no number"):
        snakemake.pick(STATIC, gpus="1")  # type: ignore[arg-type]


def test_an_empty_list_is_no_live_data() -> None:
    for nothing in ([], "[]", "", " "):
        found = snakemake.assign(CYCLES, live(nothing))
        assert found.count("clive") == 3


def test_import_is_light_and_asks_nobody() -> None:
    """With live accounts given, neither a YAML parser nor a subprocess nor Slurm is needed."""
    code = (
        "import sys; from sbatch_router.snakemake import assign, pick; "
        f"c = {{'live_accounts': {JAM!r}}}; "
        "assert assign(range(9), c, mem_gb=125) == ['maigan'] * 9; pick(c); "
        "heavy = {'yaml', 'click', 'rich', 'subprocess', 'ruamel', 'sbatch_router.live', "
        "'sbatch_router.slurm'} & set(sys.modules); print(sorted(heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PATH": ""}, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


# -- laws ---------------------------------------------------------------------------------------

WEIGHTS = st.lists(st.integers(0, 50), min_size=1, max_size=8).filter(any)
ROOMS = st.lists(
    st.builds(
        Room,
        name=st.text("abcdef", min_size=1, max_size=3),
        gpu=st.integers(0, 8),
        cpu=st.none() | st.integers(0, 64),
        mem=st.none() | st.integers(0, 640000),
        gpu_jobs=st.booleans(),
        cpu_jobs=st.booleans(),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda room: room.name,
)
JOBS = st.builds(Job, st.integers(0, 4), st.integers(0, 32), st.integers(0, 300000))
ITEMS = st.integers(0, 200)


@given(ITEMS, WEIGHTS)
def test_shares_are_proportional(items: int, weights: list[int]) -> None:
    counts = share(items, weights)
    total = sum(weights)
    assert sum(counts) == items
    for count, weight in zip(counts, weights):
        assert abs(count * total - items * weight) < total
        assert weight or not count
        if items <= total:
            assert count <= weight


@given(ITEMS, WEIGHTS)
def test_more_weight_is_never_less(items: int, weights: list[int]) -> None:
    pairs = sorted(zip(weights, share(items, weights)))
    assert [count for _, count in pairs] == sorted(count for _, count in pairs)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6))
def test_spread_keeps_the_counts_and_mixes(counts: list[int]) -> None:
    found = spread(counts)
    assert [found.count(i) for i in range(len(counts))] == counts
    if len(counts) == 2:
        # Every prefix is within one of proportional.
        for length in range(1, len(found) + 1):
            first = found[:length].count(0)
            assert abs(first * sum(counts) - length * counts[0]) <= sum(counts)


@given(ITEMS, ROOMS, JOBS, st.dictionaries(st.text("abcdef", max_size=3), st.integers(0, 9)))
def test_assign_is_deterministic_and_leaves_the_saturated_out(
    items: int, rooms: list[Room], job: Job, static: dict[str, int]
) -> None:
    found = assign(items, rooms, static, job)
    assert found == assign(items, list(rooms), dict(static), job)
    assert len(found) == items
    able = {room.name for room in rooms if slots(room, job)}
    if able:
        assert set(found) <= able
        total = sum(slots(room, job) for room in rooms)
        for room in rooms:
            exact = items * slots(room, job) / total
            assert abs(found.count(room.name) - exact) < 1


@given(ROOMS, JOBS)
def test_a_picked_account_has_room(rooms: list[Room], job: Job) -> None:
    name = pick(rooms, job)
    able = [room for room in rooms if slots(room, job)]
    if able:
        chosen = next(room for room in able if room.name == name)
        keys = [((r.gpu or 0) if job.gpus else 0, _left(r.mem), _left(r.cpu)) for r in able]
        key = ((chosen.gpu or 0) if job.gpus else 0, _left(chosen.mem), _left(chosen.cpu))
        assert key == max(keys)


def _left(amount: int | None) -> float:
    return float("inf") if amount is None else amount


@given(ROOMS, JOBS)
def test_slots_hold_the_jobs(rooms: list[Room], job: Job) -> None:
    for room in rooms:
        count = slots(room, job)
        assert count * job.gpus <= (room.gpu or 0) or not job.gpus
        for left, asked in ((room.cpu, job.cpu), (room.mem, job.mem)):
            assert left is None or count * asked <= left


@given(ROOMS, JOBS)
def test_the_shims_order(rooms: list[Room], job: Job) -> None:
    """`pick` is what decide's own sorting takes first, and ties go to what is listed first."""
    name = pick(rooms, job)
    twin = [room._replace(name=room.name + "-twin") for room in rooms]
    assert pick([*rooms, *twin], job) == name
