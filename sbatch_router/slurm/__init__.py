"""Everything that reads sbatch's and Slurm's own syntax, and the only place that runs Slurm."""
