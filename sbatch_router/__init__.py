"""A drop-in sbatch that submits each job to the Slurm account that has room now."""

__version__ = "0.1.0"
