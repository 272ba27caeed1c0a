"""Batch files with one known defect each."""

from __future__ import annotations

from typing import ClassVar

from falsifiers.recsys.reference.batch_file import TrainingJob

__all__ = [
    "AddressOfEachNode",
    "AllTasksAsLocal",
    "AlwaysEight",
    "CommandBeforeOptions",
    "CommentedOut",
    "DealtInTurns",
    "ExpandedTooEarly",
    "ExportedBeforeSrun",
    "FourForEight",
    "FourOfAKind",
    "GpusOfTheJob",
    "LocalRankAsRank",
    "NodeAsLocalRank",
    "NodesAsWorld",
    "NotExported",
    "OnlyIfStated",
    "SecondComponent",
    "SizeUnset",
    "TasksAsText",
    "TwoTasksToAGpu",
]  # fmt: skip

_LOCAL_SIZE = '    export LOCAL_WORLD_SIZE="${SLURM_NTASKS_PER_NODE:-$((SLURM_NTASKS / SLURM_NNODES))}"\n'
_RANKS = """\
    export RANK="$SLURM_PROCID"
    export LOCAL_RANK="$SLURM_LOCALID"
"""
_SRUN = "srun --kill-on-bad-exit=1 bash -c '\n"
_GPUS = "#SBATCH --gpus-per-node=8\n"


class _Edited(TrainingJob):
    """The file with some places replaced."""

    edits: ClassVar[tuple[tuple[str, str], ...]]

    def text(self) -> str:
        """Replace each place, which must be there."""
        text = super().text()
        for old, new in self.edits:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        return text


class SizeUnset(_Edited):
    """No size of a node is exported, so torchrec takes 8."""

    edits = ((_LOCAL_SIZE, ""),)


class AllTasksAsLocal(_Edited):
    """The size of a node is that of the world."""

    edits = ((_LOCAL_SIZE, '    export LOCAL_WORLD_SIZE="$SLURM_NTASKS"\n'),)


class AlwaysEight(_Edited):
    """The size of a node is 8."""

    edits = ((_LOCAL_SIZE, "    export LOCAL_WORLD_SIZE=8\n"),)


class OnlyIfStated(_Edited):
    """The size of a node is empty if the submission gave the number of all tasks."""

    edits = ((_LOCAL_SIZE, '    export LOCAL_WORLD_SIZE="${SLURM_NTASKS_PER_NODE:-}"\n'),)


class TasksAsText(_Edited):
    """The size of a node is Slurm's text of all nodes, such as 4(x18)."""

    edits = ((_LOCAL_SIZE, '    export LOCAL_WORLD_SIZE="$SLURM_TASKS_PER_NODE"\n'),)


class LocalRankAsRank(_Edited):
    """Each node counts its ranks from 0."""

    edits = (('RANK="$SLURM_PROCID"', 'RANK="$SLURM_LOCALID"'),)


class NodeAsLocalRank(_Edited):
    """The local rank is the node's number."""

    edits = (('LOCAL_RANK="$SLURM_LOCALID"', 'LOCAL_RANK="$SLURM_NODEID"'),)


class NodesAsWorld(_Edited):
    """The size of the world is the number of nodes."""

    edits = (('WORLD_SIZE="$SLURM_NTASKS"\n', 'WORLD_SIZE="$SLURM_NNODES"\n'),)


class NotExported(_Edited):
    """The ranks are set in the shell of each task, and not exported."""

    edits = ((_RANKS, _RANKS.replace("export ", "")),)


class ExportedBeforeSrun(_Edited):
    """The batch script exports its own ranks, which all tasks inherit."""

    edits = ((_RANKS, ""), (_SRUN, _RANKS + _SRUN))


class ExpandedTooEarly(_Edited):
    """The ranks stand in double quotes, so the batch script puts its own ones in."""

    edits = ((_RANKS, "'\"" + _RANKS.replace('"', "") + "\"'"),)


class DealtInTurns(_Edited):
    """Neighbouring ranks are on different nodes, which torchrec takes for one."""

    edits = (("srun --kill", "srun --distribution=cyclic --kill"),)


class AddressOfEachNode(_Edited):
    """Each task takes its own node for the first one."""

    edits = ((_RANKS, _RANKS + '    export MASTER_ADDR="$(hostname)"\n'),)


class FourForEight(_Edited):
    """Eight tasks of a node share four GPUs, as in the file before its review."""

    edits = ((_GPUS, "#SBATCH --gpus-per-node=4\n"),)


class FourOfAKind(_Edited):
    """The same, in the older spelling."""

    edits = ((_GPUS, "#SBATCH --gres=gpu:h100:4,nvme:8\n"),)


class GpusOfTheJob(_Edited):
    """Eight GPUs are those of the whole job."""

    edits = ((_GPUS, "#SBATCH -G 8\n"),)


class TwoTasksToAGpu(_Edited):
    """The job has 16 tasks for each node."""

    edits = (("--ntasks=16", "--ntasks-per-node 16"),)


class CommentedOut(_Edited):
    """The line with eight is a comment beside one with four."""

    edits = ((_GPUS, "#SBATCH --gpus-per-node 4 # 8\n##SBATCH --gpus-per-node=8\n #SBATCH --gpus-per-node=8\n"),)


class CommandBeforeOptions(_Edited):
    """A command stands before the line with eight, which Slurm therefore does not read."""

    edits = ((_GPUS, "#SBATCH --gpus-per-node=4\nulimit -c 0\n#SBATCH --gpus-per-node=8\n"),)


class SecondComponent(_Edited):
    """A second component of the job has nodes with four GPUs."""

    edits = (("\n# sbatch", "#SBATCH hetjob\n#SBATCH -N1 -n8 --gpus-per-node=4\n\n# sbatch"),)
