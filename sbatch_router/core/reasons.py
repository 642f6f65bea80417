"""Slurm's spelling of the pending reason that each limit gives.

Source: the reason table in Slurm's src/common/job_state_reason.c, and
_get_tres_state_reason() in src/slurmctld/acct_policy.c, which picks from it. The names
follow a pattern with old exceptions (``QOSGrpCpuLimit`` but ``QOSGrpGRES``).
"""

from __future__ import annotations

_CLASSES = {
    "cpu": "Cpu",
    "mem": "Memory",
    "node": "Node",
    "energy": "Energy",
    "billing": "Billing",
    "gres": "GRES",
    "license": "License",
    "bb": "BB",
}

# (level, limit kind) -> pattern; {} is the TRES class.
_PATTERNS = {
    ("qos", "GrpTRES"): "QOSGrp{}",
    ("qos", "GrpTRESMins"): "QOSGrp{}Minutes",
    ("qos", "GrpTRESRunMins"): "QOSGrp{}RunMinutes",
    ("qos", "MaxTRESPJ"): "QOSMax{}PerJob",
    ("qos", "MaxTRESPN"): "QOSMax{}PerNode",
    ("qos", "MaxTRESMinsPJ"): "QOSMax{}MinutesPerJob",
    ("qos", "MinTRESPJ"): "QOSMin{}",
    ("qos", "MaxTRESPA"): "Max{}PerAccount",
    ("qos", "MaxTRESPU"): "QOSMax{}PerUser",
    ("qos", "MaxTRESRunMinsPA"): "Max{}RunMinsPerAccount",
    ("qos", "MaxTRESRunMinsPU"): "Max{}RunMinsPerUser",
    ("assoc", "GrpTRES"): "AssocGrp{}",
    ("assoc", "GrpTRESMins"): "AssocGrp{}Minutes",
    ("assoc", "GrpTRESRunMins"): "AssocGrp{}RunMinutes",
    ("assoc", "MaxTRESPJ"): "AssocMax{}PerJob",
    ("assoc", "MaxTRESPN"): "AssocMax{}PerNode",
    ("assoc", "MaxTRESMinsPJ"): "AssocMax{}MinutesPerJob",
}

_EXCEPTIONS = {
    "QOSGrpCpu": "QOSGrpCpuLimit",
    "QOSGrpMemory": "QOSGrpMemLimit",
    "QOSGrpNode": "QOSGrpNodeLimit",
    "QOSGrpCpuMinutes": "QOSGrpCPUMinutesLimit",
    "QOSGrpCpuRunMinutes": "QOSGrpCPURunMinutesLimit",
    "QOSMaxCpuPerJob": "QOSMaxCpuPerJobLimit",
    "QOSMaxNodePerJob": "QOSMaxNodePerJobLimit",
    "QOSMaxCpuPerUser": "QOSMaxCpuPerUserLimit",
    "QOSMaxNodePerUser": "QOSMaxNodePerUserLimit",
    "QOSMaxCpuMinutesPerJob": "QOSMaxCpuMinutesPerJobLimit",
    "QOSMaxBBMinutesPerJob": "AssocMaxBBMinutesPerJob",
    "QOSMinCpu": "QOSMinCpuNotSatisfied",
    "AssocGrpCpu": "AssocGrpCpuLimit",
    "AssocGrpMemory": "AssocGrpMemLimit",
    "AssocGrpNode": "AssocGrpNodeLimit",
    "AssocGrpCpuMinutes": "AssocGrpCPUMinutesLimit",
    "AssocGrpCpuRunMinutes": "AssocGrpCPURunMinutesLimit",
    "AssocMaxCpuPerJob": "AssocMaxCpuPerJobLimit",
    "AssocMaxNodePerJob": "AssocMaxNodePerJobLimit",
    "AssocMaxCpuMinutesPerJob": "AssocMaxCpuMinutesPerJobLimit",
}

_COUNTS = {
    ("qos", "GrpJobs"): "QOSGrpJobsLimit",
    ("qos", "GrpWall"): "QOSGrpWallLimit",
    ("qos", "GrpSubmitJobs"): "QOSGrpSubmitJobsLimit",
    ("qos", "MaxWallPJ"): "QOSMaxWallDurationPerJobLimit",
    ("qos", "MaxJobsPU"): "QOSMaxJobsPerUserLimit",
    ("qos", "MaxJobsPA"): "MaxJobsPerAccount",
    ("qos", "MaxSubmitJobsPU"): "QOSMaxSubmitJobPerUserLimit",
    ("qos", "MaxSubmitJobsPA"): "MaxSubmitJobsPerAccount",
    ("assoc", "GrpJobs"): "AssocGrpJobsLimit",
    ("assoc", "GrpWall"): "AssocGrpWallLimit",
    ("assoc", "GrpSubmitJobs"): "AssocGrpSubmitJobsLimit",
    ("assoc", "MaxJobs"): "AssocMaxJobsLimit",
    ("assoc", "MaxSubmitJobs"): "AssocMaxSubmitJobLimit",
    ("assoc", "MaxWallPJ"): "AssocMaxWallDurationPerJobLimit",
}


def tres_reason(level: str, kind: str, tres: str) -> str:
    """The reason a TRES limit gives: ``("qos", "GrpTRES", "mem")`` -> ``QOSGrpMemLimit``."""
    name = _CLASSES.get(tres.partition("/")[0], "Unknown")
    if kind == "MaxTRESPN" and name in ("Node", "License"):
        name = "Unknown"
    if level == "assoc" and name == "Memory" and kind != "GrpTRES":
        name = "Mem"
    reason = _PATTERNS[level, kind].replace("{}", name)
    return _EXCEPTIONS.get(reason, reason)


def count_reason(level: str, kind: str) -> str:
    """The reason a limit on jobs or wall time gives."""
    return _COUNTS[level, kind]
