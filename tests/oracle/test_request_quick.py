"""A fixed set of the request and start oracles: what calls ask for, and what their jobs hold."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import request_oracle as oracle
import start_oracle

from sbatch_router.core.request import Need

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not shutil.which("slurmctld"), reason="no Slurm here"),
]
CALLS = 250


@pytest.fixture(scope="module")
def plain() -> Iterator[oracle.Cluster]:
    with oracle.Cluster.start(oracle.spec()) as cluster:
        yield cluster


def shown(wrong: list[oracle.Disagreement]) -> str:
    return "\n\n".join(str(one) for one in wrong)


def test_calls_ask_for_what_slurmctld_says(plain: oracle.Cluster) -> None:
    counts: Counter[str] = Counter()
    wrong = oracle.run(plain, 11, CALLS, counts)
    assert not wrong, shown(wrong)
    # Most calls are taken and judged: an oracle that is asked nothing agrees with everybody.
    assert counts["taken"] - counts["taken, with a doubt of ours"] > CALLS / 3, counts
    assert counts["refused"] > CALLS / 20, counts


def test_a_site_of_other_defaults(plain: oracle.Cluster) -> None:
    """Its settings are followed; and whoever takes it for the plain site is told so."""
    with oracle.Cluster.start(oracle.spec("defaults")) as cluster:
        wrong = oracle.run(cluster, 12, CALLS, variant="defaults")
        assert not wrong, shown(wrong)
        mistaken = oracle.run(cluster, 12, 60, variant="plain", shrinks=0)
    assert any("TRES" in one.what for one in mistaken), shown(mistaken)


def test_jobs_hold_what_was_said() -> None:
    with oracle.Cluster.start(start_oracle.spec()) as cluster:
        ran, wrong = start_oracle.run(cluster, 13, 25)
    assert not wrong, shown(wrong)
    assert ran >= 25


@pytest.mark.parametrize(
    ("held", "wrong"),
    [
        ({"cpu": 4, "mem": 900, "node": 1}, 0),
        ({"cpu": 5, "mem": 900, "node": 1}, 1),
        ({"cpu": 3, "mem": 900, "node": 1}, 1),
        ({"cpu": 4, "mem": 899, "node": 1}, 1),
        ({"cpu": 4, "mem": 9000, "node": 1}, 0),  # settled at the start, as was said
        ({"cpu": 4, "mem": 900, "node": 1, "gres/gpu": 1}, 1),
    ],
)
def test_other_tres_than_were_said_are_noticed(held: dict[str, int], wrong: int) -> None:
    at_start = {"cpu": 4, "mem": 900, "node": 1}
    need = Need(at_start, None, at_start=at_start, later=("mem",))
    assert len(start_oracle.judge(need, held)) == wrong
