"""The pure core: Slurm's arithmetic and the policy, as functions of their arguments.

Nothing here reads a file, a clock, an environment variable or a process, and nothing
here imports a module that is slow to load (docs/decisions/0001-hot-path-imports.md).
"""
