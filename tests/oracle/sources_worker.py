"""Runs as a user of the cluster: takes the same instant's snapshot from scontrol and pyslurm.

Each line on standard input asks for one comparison; each answer is one JSON line: what differs,
or "moved" when the cluster changed meanwhile. Alone: ``sources_worker.py PACKAGES ACCOUNTS QOS``.
"""

from __future__ import annotations

import json
import os
import pwd
import sys
import time

sys.path[:0] = sys.argv[1].split(":")

from sbatch_router.core.tres import NO_LIMIT, UNKNOWN  # noqa: E402
from sbatch_router.slurm.collect import collect_live, collect_site  # noqa: E402
from sbatch_router.slurm.pyslurm_source import collect_pyslurm  # noqa: E402

#: Kinds of which only slurmctld knows the use.
#: Kinds whose use pyslurm may not know: a pending job that names several QOS or partitions
#: counts for one of them.
DOUBTFUL = {"GrpSubmitJobs", "MaxSubmitJobsPU", "MaxSubmitJobsPA"}
UNCOUNTED = {"GrpTRESMins", "GrpTRESRunMins", "MaxTRESRunMinsPU", "MaxTRESRunMinsPA", "GrpWall"}
#: Fields of a snapshot that say when and how it was taken.
APART = ("taken_at", "source", "troubles")
SECONDS = 10.0


class Differ:
    """Collects what differs; `known` counts what both told and is equal, `unknown` what not."""

    def __init__(self):
        self.found = []
        self.known = 0
        self.unknown = 0

    def equal(self, where, ours, theirs):
        if ours == theirs:
            self.known += 1
        else:
            self.found.append(f"{where}: scontrol {ours!r}, pyslurm {theirs!r}")

    def limit(self, where, kind, ours, theirs):
        """The limits are equal; so is the use, unless it is a kind that cannot be counted."""
        self.equal(where, ours.limit, theirs.limit)
        if theirs.used is UNKNOWN and kind in UNCOUNTED | DOUBTFUL:
            self.unknown += 1
        elif ours.limit is not None or kind not in UNCOUNTED:
            self.equal(f"{where} used", ours.used, theirs.used)

    def scope(self, where, ours, theirs):
        self.equal(f"{where} kinds", sorted(ours.tres), sorted(theirs.tres))
        self.equal(f"{where} counts", sorted(ours.counts), sorted(theirs.counts))
        for kind in ours.tres.keys() & theirs.tres.keys():
            mine, other = ours.tres[kind], theirs.tres[kind]
            for name in mine.keys() | other.keys():
                one, two = mine.get(name, NO_LIMIT), other.get(name, NO_LIMIT)
                if one.limit is None and two.limit is None and kind in UNCOUNTED:
                    continue  # nobody asks for the use of what is not limited
                self.limit(f"{where} {kind} {name}", kind, one, two)
        for kind in ours.counts.keys() & theirs.counts.keys():
            self.limit(f"{where} {kind}", kind, ours.counts[kind], theirs.counts[kind])

    def rows(self, where, names, ours, our_default, theirs):
        """Who has no row with slurmctld uses nothing under the QOS's own limits."""
        for name in names:
            mine = ours.get(name) or our_default
            kinds = {kind for kind in mine.tres if kind in theirs[name].tres}
            counts = {kind for kind in mine.counts if kind in theirs[name].counts}
            row = mine._replace(
                tres={kind: self._all(mine.tres[kind], theirs[name].tres[kind]) for kind in kinds},
                counts={kind: mine.counts[kind] for kind in counts},
            )
            self.scope(f"{where} of {name}", row, theirs[name])

    def _all(self, mine, theirs):
        """Unused TRES that a row does not print."""
        zero = NO_LIMIT._replace(used=0)
        return {name: mine.get(name, zero) for name in mine.keys() | theirs.keys()}


def differences(ours, theirs, user, accounts):
    """A Differ that has seen every field of both snapshots."""
    differ = Differ()
    for field in ("user", "partitions", "config", "default_account"):
        differ.equal(field, getattr(ours, field), getattr(theirs, field))
    if ours.qos is UNKNOWN or theirs.qos is UNKNOWN:
        differ.found.append(f"no QOS: {ours.troubles} {theirs.troubles}")
        return differ
    differ.equal("qos", sorted(ours.qos), sorted(theirs.qos))
    for name in ours.qos.keys() & theirs.qos.keys():
        one, two = ours.qos[name], theirs.qos[name]
        for field in one._fields:
            if field not in ("limits", "users", "accounts", "defaults"):
                differ.equal(f"qos {name} {field}", getattr(one, field), getattr(two, field))
        differ.scope(f"qos {name}", one.limits, two.limits)
        differ.scope(f"qos {name} defaults", one.defaults, two.defaults)
        differ.rows(f"qos {name} users", [user], one.users, one.defaults, two.users)
        differ.rows(f"qos {name} accounts", accounts, one.accounts, one.defaults, two.accounts)
    differ.equal("assocs", sorted(ours.assocs), sorted(theirs.assocs))
    for key in ours.assocs.keys() & theirs.assocs.keys():
        one, two = ours.assocs[key], theirs.assocs[key]
        if two.fairshare is None:  # not told
            differ.unknown += 1
            one = one._replace(fairshare=None)
        for field in one._fields:
            if field != "limits":
                differ.equal(f"assoc {key} {field}", getattr(one, field), getattr(two, field))
        differ.scope(f"assoc {key}", one.limits, two.limits)
    _jobs(differ, ours, theirs)
    return differ


def _jobs(differ, ours, theirs):
    mine = {job.id: job for job in ours.jobs}
    other = {job.id: job for job in theirs.jobs}
    differ.equal("jobs", sorted(mine), sorted(other))
    for ident in mine.keys() & other.keys():
        one, two = mine[ident], other[ident]
        if two.time_limit is UNKNOWN:
            differ.unknown += 1
            one = one._replace(time_limit=UNKNOWN)
        differ.equal(f"job {ident}", one, two)


def still(snapshot):
    """What of a snapshot must not move between two looks."""
    fields = {name: getattr(snapshot, name) for name in snapshot._fields if name not in APART}
    return {name: str(value) for name, value in fields.items() if name not in ("qos", "assocs")}, [
        str(scope)
        for records in (snapshot.qos, snapshot.assocs)
        if records is not UNKNOWN
        for scope in map(_without_minutes, records.values())
    ]


def _without_minutes(record):
    tres = {k: v for k, v in record.limits.tres.items() if k not in UNCOUNTED}
    counts = {k: v for k, v in record.limits.counts.items() if k not in UNCOUNTED}
    return tres, counts


def look(accounts, qos):
    user, uid = pwd.getpwuid(os.getuid()).pw_name, os.getuid()
    site = collect_site(user, SECONDS, SECONDS, time.time())
    ask = (site, accounts, qos, user, uid, SECONDS, time.time())
    before = collect_live(*ask)
    found = collect_pyslurm(*ask)
    if still(before) != still(collect_live(*ask)):
        return {"moved": True}
    differ = differences(before, found, user, accounts)
    running = sum(job.state == "RUNNING" for job in before.jobs or ())
    return {
        "moved": False,
        "differs": differ.found,
        "known": differ.known,
        "unknown": differ.unknown,
        "jobs": len(before.jobs or ()),
        "running": running,
        "troubles": [*before.troubles, *found.troubles],
    }


def main():
    accounts, qos = sys.argv[2].split(","), sys.argv[3].split(",")
    for _ in sys.stdin:
        print(json.dumps(look(accounts, qos)), flush=True)


if __name__ == "__main__":
    main()
