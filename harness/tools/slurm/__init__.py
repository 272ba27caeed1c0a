"""Claims as jobs of Slurm: each job runs `harness run` on the node that Slurm chose, and tells what happens there."""
