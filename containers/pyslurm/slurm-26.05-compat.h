/*
 * Force-included (CFLAGS=-include) when pyslurm 25.11.2 is built against Slurm 26.05: what 26.05
 * renamed, removed or gave another type, each under its old name. Nothing here is called by
 * sbatch-router, which asks pyslurm for QOS, associations, TRES and jobs only; without it
 * pyslurm does not compile.
 */
#ifndef SBATCH_ROUTER_SLURM_26_05_COMPAT_H
#define SBATCH_ROUTER_SLURM_26_05_COMPAT_H

/*
 * Calls that took a job id take a slurm_step_id_t: slurm_get_end_time, slurm_get_rem_time,
 * slurm_job_node_ready, slurm_kill_job, slurm_load_job, slurm_notify_job, slurm_pid2jobid,
 * slurm_requeue, slurm_resume, slurm_suspend. With this, slurm.h itself accepts both (it tells
 * them apart with C11's _Generic, which gcc has by default).
 */
#define SLURM_BACKWARD_COMPAT 1

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

/* Renamed, its argument as before (pyslurm's Config frees itself with it). */
#define slurm_free_ctl_conf slurm_free_conf

/* An error code that is gone; pyslurm only copies it into a table of constants. */
#define ESLURM_ERROR_ON_DESC_TO_RECORD_COPY SLURM_ERROR

#endif
