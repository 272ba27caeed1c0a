"""Parses the #SBATCH lines of a batch file, and derives the tasks and GPUs of a node.

Slurm reads lines that begin with #SBATCH up to the first command. ##SBATCH and an indented #SBATCH are comments. A
later option replaces an earlier one. `#SBATCH hetjob` begins another component of the job.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_DIRECTIVE = "#SBATCH"
_SEPARATORS = ("hetjob", "packjob")
_SHORT = {"N": "nodes", "n": "ntasks", "G": "gpus", "m": "distribution", "w": "nodelist"}
_SHORT_FLAGS = frozenset("EHIKOQVWXZhklsuv")
"""Single-letter options without a value, or with one that must follow directly."""
_FLAGS = frozenset((
    "contiguous", "container-entrypoint", "container-mount-home", "container-readonly", "container-remap-root",
    "container-writable", "disable-status", "exact", "exclusive", "get-user-env", "help", "hold", "ignore-pbs",
    "immediate", "kill-on-bad-exit", "label", "multi-prog", "no-allocate", "no-container-entrypoint",
    "no-container-mount-home", "no-container-remap-root", "no-kill", "no-requeue", "overcommit", "overlap",
    "oversubscribe", "parsable", "preserve-env", "propagate", "pty", "quiet", "reboot", "requeue", "spread-job",
    "stepmgr", "test-only", "unbuffered", "usage", "use-min-nodes", "verbose", "version", "wait-all-nodes", "whole",
))  # fmt: skip
"""Long options that take no value, or only one after an equals sign."""
_VALUED = frozenset((
    "chdir", "cpus-per-gpu", "cpus-per-task", "deadline", "delay-boot", "dependency", "distribution", "error",
    "export", "export-file", "gid", "gpu-bind", "gpu-freq", "gpus", "gpus-per-node", "gpus-per-socket",
    "gpus-per-task", "gres", "gres-flags", "input", "job-name", "mem", "mem-per-cpu", "mem-per-gpu", "network",
    "nice", "nodefile", "nodelist", "nodes", "ntasks", "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-node",
    "ntasks-per-socket", "output", "partition", "signal", "sockets-per-node", "switches", "thread-spec",
    "threads-per-core", "time", "time-min", "tmp", "tres-bind", "tres-per-task",
))  # fmt: skip
"""Long options with a value, for abbreviations. An unknown option also takes the next word."""


class NotUnderstood(ValueError):
    """An option has a value that this parser does not know. Slurm may refuse it too."""


@dataclass(frozen=True)
class Request:
    """The tasks and GPUs that one component of a job requests on each node; None if the file does not say.

    If tasks or GPUs may be spread unevenly, these are the most tasks and the fewest GPUs of a node.
    """

    tasks_per_node: int | None
    gpus_per_node: int | None


def components(text: str) -> list[dict[str, str]]:
    """Return the options of each component of a job, by long name."""
    options_of_components: list[dict[str, str]] = [{}]
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            break
        if not re.match(rf"{_DIRECTIVE}(\s|$)", line):
            continue
        try:
            words = shlex.split(line.removeprefix(_DIRECTIVE), comments=True)
        except ValueError as error:
            raise NotUnderstood(f"{line.strip()}: {error}") from error
        if words and words[0] in _SEPARATORS:
            options_of_components.append({})
        else:
            options_of_components[-1] |= parsed(words)[0]
    return options_of_components


def parsed(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options at the start of a command line by long name, and the remaining words."""
    options: dict[str, str] = {}
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = _full(name)
            if not equals and name not in _FLAGS and rest:
                value = rest.pop(0)
        elif word[1] in _SHORT_FLAGS:
            continue
        else:
            name = _SHORT.get(word[1], word[1])
            value = word[2:] or (rest.pop(0) if rest else "")
        options[name] = value
    return options, rest


def request(options: Mapping[str, str]) -> Request:
    """Return the tasks and GPUs of a node."""
    nodes = _least(options["nodes"]) if "nodes" in options else None
    tasks = _number(options["ntasks"]) if "ntasks" in options else None
    per_node = _number(options["ntasks-per-node"]) if "ntasks-per-node" in options else None
    if tasks is not None:  # then ntasks-per-node is only a limit
        spread = -(-tasks // nodes) if nodes else (tasks if tasks == 1 else None)
        per_node = spread if spread is not None and (per_node is None or spread < per_node) else per_node
    gpus = _gpus_per_node(options, nodes)
    of_each = _gpus_per_task(options)
    if of_each is not None:
        per_node = 1 if per_node is None else per_node  # each task brings its own GPUs, wherever it runs
        gpus = of_each * per_node if gpus is None else min(gpus, of_each * per_node)
    if "ntasks-per-gpu" in options:
        of_gpu = _number(options["ntasks-per-gpu"])
        if tasks is None and "ntasks-per-node" not in options:
            per_node = of_gpu * gpus if gpus is not None else None
        elif gpus is None and per_node is not None:
            gpus = -(-per_node // of_gpu) if of_gpu else None
    elif tasks is None and per_node is None:
        per_node = 1
    return Request(per_node, gpus)


def _gpus_per_node(options: Mapping[str, str], nodes: int | None) -> int | None:
    if "gpus-per-node" in options:
        return _counted(options["gpus-per-node"])
    if "gres" in options and (named := _named_gpus(options["gres"])) is not None:
        return named
    if "gpus" in options:
        return _counted(options["gpus"]) // nodes if nodes else None
    if {"gpus-per-socket", "sockets-per-node"} <= options.keys():
        return _counted(options["gpus-per-socket"]) * _number(options["sockets-per-node"])
    return None


def _gpus_per_task(options: Mapping[str, str]) -> int | None:
    if "gpus-per-task" in options:
        return _counted(options["gpus-per-task"])
    return _named_gpus(options.get("tres-per-task", ""))


def _named_gpus(text: str) -> int | None:
    """Return the GPUs of a list of resources, such as `gpu:h100:4,nvme:1`; None if it names none."""
    if text.lower() == "none":
        return 0
    counts = []
    for part in filter(None, text.split(",")):
        kind, *rest = re.split("[:=]", part.removeprefix("gres/").removeprefix("gres:"))
        if kind == "gpu":
            counts.append(_number(rest[-1]) if rest and rest[-1][:1].isdigit() else 1)
    return sum(counts) if counts else None


def _counted(text: str) -> int:
    """Return how many GPUs a text such as `8`, `h100:8` or `a100:2,h100:2` names."""
    return sum(_number(part.rpartition(":")[2]) for part in text.split(","))


def _least(text: str) -> int:
    """Return the smallest number of nodes that a text such as `4`, `2-4` or `2,4` allows."""
    return min(_number(part) for part in re.split("[-,]", text.partition(":")[0]))


def _number(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise NotUnderstood(f"{text!r} is not a number that Slurm reads in a #SBATCH line")
    return int(text)


def _full(name: str) -> str:
    """Return the long option for a unique abbreviation."""
    if name in _FLAGS or name in _VALUED:
        return name
    meant = [option for option in sorted(_FLAGS | _VALUED) if option.startswith(name)]
    return meant[0] if len(meant) == 1 else name
