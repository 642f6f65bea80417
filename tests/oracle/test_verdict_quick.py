"""A fixed set of the verdict oracle: a few hundred verdicts on each kind of cluster."""

from __future__ import annotations

import random
import shutil
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import verdict_oracle as oracle

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not shutil.which("slurmctld"), reason="no Slurm here"),
]
#: Verdicts with which a reason, or none, is claimed.
CERTAIN = ("fits", "waits_mine", "waits_others")


@pytest.mark.parametrize(
    ("name", "nodes", "settings", "rounds"),
    [(name, nodes, settings, 3 if nodes == 4 else 2)
     for name, nodes, settings, _ in oracle.CLUSTERS],
    ids=[name for name, *_ in oracle.CLUSTERS],
)  # fmt: skip
def test_verdicts_are_slurmctlds(name, nodes, settings, rounds):
    rng = random.Random(f"quick {name}")
    counts: Counter[str] = Counter()
    with oracle.Cluster.start(oracle.spec(nodes, **settings)) as cluster:
        bench = oracle.Bench(cluster, nodes)
        results = list(oracle.batch(bench, rng, oracle.Deck(rng), counts, rounds))
        wrong = [r for r in results if r.wrong]
        # The real command line, as alice, says what is judged in process.
        for island in range(2):
            wrong += oracle.through_explain(bench, island, oracle.ask(rng, 1), counts)
        shrunk = [oracle.shrink(bench, r).text() for r in wrong[:1]]
    assert not wrong, "\n".join([r.text() for r in wrong] + ["shrunk:"] + shrunk)
    judged = len(results) - counts["verdict unknown"]
    assert judged > len(results) * 0.8, counts
    assert counts["verdict fits"] > 5
    assert counts["verdict never"] > 5
    # Had we said the opposite, each of these would have been noticed.
    reasons = [r for r in results if r.job and not r.alone and r.ours["verdict"] in CERTAIN]
    assert reasons
    for one in reasons:
        opposite = "" if one.ours["reason"] else "QOSGrpCpuLimit"
        assert oracle.compare(replace(one, ours={**one.ours, "reason": opposite})), one.text()
