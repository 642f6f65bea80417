"""Slurm's spelling of reasons, from the table in src/common/job_state_reason.c."""

from __future__ import annotations

import pytest

from sbatch_router.core.reasons import count_reason, tres_reason

#: All accounting reasons of 26.05 that a limit on TRES can give; 22.05 lacks the ...RunMinsPer*.
_NAMES = """
QOSGrpCpuLimit QOSGrpCPUMinutesLimit QOSGrpCPURunMinutesLimit QOSGrpMemLimit QOSGrpNodeLimit
QOSMaxCpuPerJobLimit QOSMaxCpuMinutesPerJobLimit QOSMaxNodePerJobLimit QOSMaxCpuPerUserLimit
QOSMaxNodePerUserLimit QOSMinCpuNotSatisfied AssocGrpCpuLimit AssocGrpCPUMinutesLimit
AssocGrpCPURunMinutesLimit AssocGrpMemLimit AssocGrpNodeLimit AssocMaxCpuPerJobLimit
AssocMaxCpuMinutesPerJobLimit AssocMaxNodePerJobLimit AssocGrpUnknown AssocGrpUnknownMinutes
AssocGrpUnknownRunMinutes AssocMaxUnknownPerJob AssocMaxUnknownPerNode
AssocMaxUnknownMinutesPerJob AssocMaxCpuPerNode AssocGrpMemMinutes AssocGrpMemRunMinutes
AssocMaxMemPerJob AssocMaxMemPerNode AssocMaxMemMinutesPerJob AssocGrpNodeMinutes
AssocGrpNodeRunMinutes AssocMaxNodeMinutesPerJob AssocGrpGRES AssocGrpGRESMinutes
AssocGrpGRESRunMinutes AssocMaxGRESPerJob AssocMaxGRESPerNode AssocMaxGRESMinutesPerJob
AssocGrpLicense AssocGrpLicenseMinutes AssocGrpLicenseRunMinutes AssocMaxLicensePerJob
AssocMaxLicenseMinutesPerJob AssocGrpBB AssocGrpBBMinutes AssocGrpBBRunMinutes AssocMaxBBPerJob
AssocMaxBBPerNode AssocMaxBBMinutesPerJob QOSGrpUnknown QOSGrpUnknownMinutes
QOSGrpUnknownRunMinutes QOSMaxUnknownPerJob QOSMaxUnknownPerNode QOSMaxUnknownPerUser
QOSMaxUnknownMinutesPerJob QOSMinUnknown QOSMaxCpuPerNode QOSGrpMemoryMinutes
QOSGrpMemoryRunMinutes QOSMaxMemoryPerJob QOSMaxMemoryPerNode QOSMaxMemoryPerUser
QOSMaxMemoryMinutesPerJob QOSMinMemory QOSGrpNodeMinutes QOSGrpNodeRunMinutes
QOSMaxNodeMinutesPerJob QOSMinNode QOSGrpGRES QOSGrpGRESMinutes QOSGrpGRESRunMinutes
QOSMaxGRESPerJob QOSMaxGRESPerNode QOSMaxGRESPerUser QOSMaxGRESMinutesPerJob QOSMinGRES
QOSGrpLicense QOSGrpLicenseMinutes QOSGrpLicenseRunMinutes QOSMaxLicensePerJob
QOSMaxLicensePerUser QOSMaxLicenseMinutesPerJob QOSMinLicense QOSGrpBB QOSGrpBBMinutes
QOSGrpBBRunMinutes QOSMaxBBPerJob QOSMaxBBPerNode QOSMaxBBPerUser QOSMinBB MaxBBPerAccount
MaxCpuPerAccount MaxGRESPerAccount MaxNodePerAccount MaxLicensePerAccount MaxMemoryPerAccount
MaxUnknownPerAccount AssocGrpBilling AssocGrpBillingMinutes AssocGrpBillingRunMinutes
AssocMaxBillingPerJob AssocMaxBillingPerNode AssocMaxBillingMinutesPerJob QOSGrpBilling
QOSGrpBillingMinutes QOSGrpBillingRunMinutes QOSMaxBillingPerJob QOSMaxBillingPerNode
QOSMaxBillingPerUser QOSMaxBillingMinutesPerJob MaxBillingPerAccount QOSMinBilling
MaxBBRunMinsPerAccount MaxBillingRunMinsPerAccount MaxCpuRunMinsPerAccount
MaxGRESRunMinsPerAccount MaxNodeRunMinsPerAccount MaxLicenseRunMinsPerAccount
MaxMemoryRunMinsPerAccount MaxUnknownRunMinsPerAccount MaxBBRunMinsPerUser
MaxBillingRunMinsPerUser MaxCpuRunMinsPerUser MaxGRESRunMinsPerUser MaxNodeRunMinsPerUser
MaxLicenseRunMinsPerUser MaxMemoryRunMinsPerUser MaxUnknownRunMinsPerUser
"""
KNOWN = frozenset(_NAMES.split())
ASSOC = ("GrpTRES", "GrpTRESMins", "GrpTRESRunMins", "MaxTRESPJ", "MaxTRESPN", "MaxTRESMinsPJ")
QOS = (*ASSOC, "MinTRESPJ", "MaxTRESPA", "MaxTRESPU", "MaxTRESRunMinsPA", "MaxTRESRunMinsPU")
TRES = ("cpu", "mem", "node", "billing", "gres/gpu", "gres/gpu:a100", "license/x@db", "bb/cray",
        "fs/disk", "vmem", "pages", "ic/ofed")  # fmt: skip


def test_every_reason_is_one_of_slurms_and_every_one_of_slurms_is_reached():
    given = {tres_reason("qos", kind, tres) for kind in QOS for tres in TRES}
    given |= {tres_reason("assoc", kind, tres) for kind in ASSOC for tres in TRES}
    assert given == KNOWN


@pytest.mark.parametrize(
    ("level", "kind", "reason"),
    [
        ("qos", "GrpJobs", "QOSGrpJobsLimit"),
        ("qos", "MaxJobsPA", "MaxJobsPerAccount"),
        ("qos", "MaxSubmitJobsPU", "QOSMaxSubmitJobPerUserLimit"),
        ("qos", "MaxSubmitJobsPA", "MaxSubmitJobsPerAccount"),
        ("assoc", "MaxSubmitJobs", "AssocMaxSubmitJobLimit"),
        ("assoc", "GrpSubmitJobs", "AssocGrpSubmitJobsLimit"),
        ("assoc", "MaxWallPJ", "AssocMaxWallDurationPerJobLimit"),
    ],
)
def test_counts(level, kind, reason):
    assert count_reason(level, kind) == reason
