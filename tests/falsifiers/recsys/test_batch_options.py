"""The reading of #SBATCH lines: spellings, abbreviations, comments, and components."""

from __future__ import annotations

import pytest

from falsifiers.recsys.oracle.batch_options import NotUnderstood, Request, components, parsed, request

HEAD = "#!/bin/bash\n"


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("--nodes=2 --ntasks-per-node=8 --gpus-per-node=8", Request(8, 8)),
        ("-N 2 --ntasks-per-node 8 --gpus-per-node 8", Request(8, 8)),
        ("-N2 -n16 -G16", Request(8, 8)),
        ("-N 2-4 -n 16 --gpus=h100:16", Request(8, 8)),
        ("-N 3 -n 16 -G 16", Request(6, 5)),
        ("--nodes=2 --ntasks-per-node=8 --gres=gpu", Request(8, 1)),
        ("--nodes=2 --ntasks-per-node=8 --gres=gpu:4", Request(8, 4)),
        ("--nodes=2 --ntasks-per-node=8 --gres=nvme:2,gpu:h100:4,gpu:a100:2", Request(8, 6)),
        ("--nodes=2 --ntasks-per-node=8 --gres=none", Request(8, 0)),
        ("--nodes=2 --ntasks-per-node=8 --gres=nvme:2", Request(8, None)),
        ("--gpus-per-node=a100:2,h100:2", Request(1, 4)),
        ("-n 16 --gpus-per-task=1", Request(1, 1)),
        ("-N2 --ntasks-per-node=8 --gpus-per-task=1 --gpus-per-node=4", Request(8, 4)),
        ("-N2 --ntasks-per-node=8 --tres-per-task=cpu:4,gres/gpu:1", Request(8, 8)),
        ("-N2 --ntasks-per-gpu=1 --gpus-per-node=4", Request(4, 4)),
        ("-N2 --gpus-per-socket=4 --sockets-per-node=2", Request(1, 8)),
        ("-n 16 --gpus-per-node=8", Request(None, 8)),
        ("-n 16 -G 16", Request(None, None)),
        ("-N2 -n4 --ntasks-per-node=8 --gpus-per-node=2", Request(2, 2)),
        ("--exclusive --mem=0 -N2 --ntasks-per-node=8", Request(8, None)),
        ("--ntasks-per-n=8 --gpus-per-n=8", Request(8, 8)),
        ("-HN2 --ntasks-per-node=8", Request(8, None)),
    ],
)
def test_spellings(line: str, asked: Request) -> None:
    """Every spelling of the numbers of tasks and GPUs is read."""
    (options,) = components(f"{HEAD}#SBATCH {line}\n")
    assert request(options) == asked


def test_what_is_no_directive() -> None:
    """Comments, other words, and everything after the first command are no directives."""
    text = (
        f"{HEAD}\n# words\n##SBATCH -N 3\n #SBATCH -N 4\n#SBATCHES -N 5\n#SBATCH\t--nodes=2 # -N 6\n"
        "#SBATCH --job-name='a # b' -c 4\n\nexport A=1\n#SBATCH -N 7\n"
    )
    assert components(text) == [{"nodes": "2", "job-name": "a # b", "c": "4"}]


def test_components() -> None:
    """Each component has its own options. If a name occurs twice, the last one counts."""
    text = f"{HEAD}#SBATCH -N1 -N2\n#SBATCH hetjob\n#SBATCH -N4\n#SBATCH packjob\n"
    assert components(text) == [{"nodes": "2"}, {"nodes": "4"}, {}]


@pytest.mark.parametrize("line", ["--nodes=$N", "-N 1k", "--gres=gpu:h100:4x", "--job-name='open"])
def test_what_is_not_understood(line: str) -> None:
    """The problem is reported, and no number is guessed."""
    with pytest.raises(NotUnderstood):
        request(components(f"{HEAD}#SBATCH {line}\n")[0])


def test_a_command_follows_options() -> None:
    """The command begins after srun's options. A flag among them takes no value."""
    words = ["--kill-on-bad-exit=1", "--unbuffered", "-l", "-n", "4", "--container-image=", "bash", "-c", "true"]
    options, command = parsed(words)
    assert (options["ntasks"], command) == ("4", ["bash", "-c", "true"])
