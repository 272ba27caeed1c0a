"""`harness doctor`: shows what this machine offers and which claims it can run."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from harness.base import strictjson
from harness.base.device import DeviceClass, hardware
from harness.contract import Contract
from harness.contract.claim_folder import claim_of
from harness.contract.project import Project
from harness.machine import host, timebox
from harness.machine.host import Host
from harness.machine.installed import Tool
from harness.machine.requirements import out_of_reach
from harness.report.terminal.printing import tell, tell_json, terminal_width
from harness.running.plan import make_plan, option_for_target
from harness.running.request import RunRequest
from harness.tools.doctor import survey
from harness.tools.doctor.survey import Toolchain

__all__ = ["command"]

Line = tuple[str, str]
"""A name, and the text beside it."""


@click.command("doctor", short_help="show what this machine offers, and which claims it can run")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(as_json: bool) -> None:
    """Show what this machine offers, and whether each claim can run here.

    Neither torch nor CUDA is loaded. Each check takes at most 20 s. The exit status is 0 even if something is missing.
    """
    tools = survey.survey()
    machine = host.probe()
    claims = _claims(machine)
    disks = _disks(machine)
    if as_json:
        report = {
            "format": 1,
            "host": dataclasses.asdict(machine),
            "tools": dataclasses.asdict(tools),
            "disks": disks,
            "claims": claims,
        }
        tell_json(strictjson.loads(json.dumps(report, default=str)))
        return
    sections = {
        "Machine": [*_machine_lines(machine), *_disk_lines(disks)],
        "GPUs": list(_gpu_lines(machine)),
        "Tools": list(_tool_lines(tools, machine)),
        "Claims": list(_claim_lines(claims)),
    }
    on_terminal = terminal_width() is not None
    for title, lines in sections.items():
        if on_terminal:
            tell(title, "bold")
        widest = max(len(name) for name, _ in lines)
        for name, text in lines:
            style = "yellow" if text.startswith(("none", "not at all", "refused")) else ""
            shown = f"  {name:<{widest}}  {text}" if on_terminal else f"{name}: {text}"
            tell(shown, style, hanging=min(widest + 4, 24))


def _claims(machine: Host) -> dict[str, Any]:
    """Return for each claim of the project the profile that can run here, and what is missing."""

    def load() -> dict[str, Any]:
        project = Project.find(Path.cwd())
        contracts, refused = project.load_all()
        rows = [_claim(contract, machine) for contract in contracts]
        unplanned: dict[str, Any] = {"never_full": [], "on_target": None, "target": {}, "option_for_target": ""}
        for error in refused:
            why = "; ".join(map(str, error.problems))
            rows.append({"id": claim_of(error.path), "runs": "refused", "why": [why], **unplanned})
        return {"project": str(project.root), "claims": rows, "reason": None}

    answer = timebox.call(load, 60)
    if answer.value is not None:
        return answer.value
    return {"project": None, "claims": [], "reason": (answer.reason or "").removeprefix("ProjectError: ")}


def _claim(contract: Contract, machine: Host) -> dict[str, Any]:
    plan = make_plan(contract, machine, RunRequest())
    return {
        "id": contract.id,
        "runs": "not at all" if plan.obstacle else plan.profile.name,
        "why": [f"not {name}: {reason}" for name, reasons in plan.passed_over.items() for reason in reasons],
        "never_full": out_of_reach(contract.profiles["full"].requires, machine) if "full" in contract.profiles else [],
        "target": dict(contract.target),
        "on_target": not contract.target or DeviceClass.of(plan.device).meets(contract.target),
        "option_for_target": option_for_target(contract, machine),
    }


def _disks(machine: Host) -> list[dict[str, Any]]:
    """Return the free space here and, if that is another folder, in the folder of temporary files."""
    temporary = Path(tempfile.gettempdir())
    answer = timebox.call(lambda: shutil.disk_usage(temporary).free, 10)
    here = {"path": str(machine.disk), "free_bytes": machine.disk_free_bytes, "reason": None}
    if machine.disk_free_bytes is None:
        here["reason"] = "could not be read"
    if machine.disk == temporary:
        return [here]
    return [here, {"path": str(temporary), "free_bytes": answer.value, "reason": answer.reason}]


def _machine_lines(machine: Host) -> Iterator[Line]:
    yield "host", f"{machine.hostname}, {machine.machine}, {machine.kernel}"
    yield "processors", f"{machine.cpu_count} usable"
    yield "memory", f"{_gib(machine.memory_bytes)} ({machine.memory_source})"
    yield "python", f"{sys.version.split()[0]} at {sys.executable}"


def _disk_lines(disks: list[dict[str, Any]]) -> Iterator[Line]:
    for disk in disks:
        yield "disk", f"{disk['reason'] or _gib(disk['free_bytes']) + ' free'} in {disk['path']}"


def _gpu_lines(machine: Host) -> Iterator[Line]:
    yield "driver", machine.driver or f"none: {machine.gpu_reason or 'NVML does not say'}"
    yield "cuda", f"up to {machine.cuda_driver_version}" if machine.cuda_driver_version else "unknown without a driver"
    if not machine.gpus:
        yield "gpus", "none" if machine.driver is None else f"none: {machine.gpu_reason}"
    for gpu in machine.gpus:
        shared = {True: "unified", False: "not unified", None: "unified or not: unknown"}[gpu.unified]
        capability = gpu.compute_capability or "unknown"
        memory = f"{_gib(gpu.memory_bytes)} ({gpu.memory_source})"
        yield f"gpu {gpu.index}", f"{gpu.name}, compute capability {capability}, {memory}, {shared}, {gpu.uuid}"
        for name, reason in gpu.reasons.items():
            yield f"gpu {gpu.index}", f"{name} is unknown: {reason}"
    for note in machine.notes:
        yield "note", note


def _tool_lines(tools: Toolchain, machine: Host) -> Iterator[Line]:
    built = tools.torch.details.get("cuda")
    suffix = "" if tools.torch.version is None else f", built for CUDA {built}" if built else ", built without CUDA"
    yield "torch", _tool(tools.torch) + suffix
    yield "triton", _tool(tools.triton)
    for tool in tools.ptxas:
        targets = tool.details.get("targets", [])
        known = f" ({tool.details['found_by']}), {_targets(targets)}" if targets else ""
        yield "ptxas", _tool(tool) + known
        for gpu in machine.gpus:
            target = f"sm_{(gpu.compute_capability or '').replace('.', '')}"
            if targets and target not in targets:
                yield "ptxas", f"{tool.path} does not know {target} of GPU {gpu.index}"
    for tool in tools.vulkan:
        adapter = tool.details.get("adapter")
        what = (
            f"{adapter} ({tool.details.get('type')}), {tool.details.get('driver')}, by {tool.path}" if adapter else ""
        )
        yield "vulkan", what or f"none: {tool.reason}"
    yield "slurm", _tool(tools.slurm)
    for partition in tools.slurm.details.get("partitions", []):
        yield "slurm", partition


def _tool(tool: Tool) -> str:
    if tool.version is None and tool.path is None:
        return f"none: {tool.reason}"
    text = f"{tool.version or 'of unknown version'} at {tool.path}"
    return f"{text} ({tool.reason})" if tool.reason else text


def _targets(targets: list[str]) -> str:
    """Return the sm_ numbers with their architecture-specific variants: sm_90 and sm_90a become 90+a."""
    variants: dict[str, str] = {}
    for target in targets:
        number = target.removeprefix("sm_").rstrip("af")
        variants[number] = variants.get(number, "") + target.removeprefix(f"sm_{number}")
    return "sm_ " + " ".join(f"{number}+{letters}" if letters else number for number, letters in variants.items())


def _why(claim: dict[str, Any]) -> list[str]:
    """Return why a claim does not run in full on its target."""
    # Only for the full profile. The reduced profile never discharges a claim.
    elsewhere = claim["runs"] == "full" and not claim["on_target"]
    proxy = [f"its target is {hardware(claim['target'])}, so a PASS here is PARTIAL"] if elsewhere else []
    if claim["option_for_target"]:
        proxy = [f"not on its target, {hardware(claim['target'])}: {claim['option_for_target']} runs it there"]
    return [*claim["why"], *proxy]


def _claim_lines(report: dict[str, Any]) -> Iterator[Line]:
    if report["project"] is None:
        yield "project", f"none: {report['reason']}"
        return
    count: Counter[str] = Counter()
    ids_by_line: dict[str, list[str]] = {}
    for claim in report["claims"]:
        count[claim["runs"]] += 1
        for why in _why(claim):
            ids_by_line.setdefault(why, []).append(claim["id"])
    shared = [why for why, claims in ids_by_line.items() if len(claims) > 1]
    for number, why in enumerate(shared, 1):
        yield f"[{number}]", f"{why} ({len(ids_by_line[why])} claims)"
    for claim in report["claims"]:
        own = [f"[{shared.index(why) + 1}]" if why in shared else why for why in _why(claim)]
        yield claim["id"], "; ".join([claim["runs"], *own])
    kinds = ", ".join(f"{count[kind]} {kind}" for kind in ("full", "reduced", "not at all", "refused"))
    for claim in report["claims"]:
        if claim["never_full"]:
            yield "never in full here", f"{claim['id']}: {'; '.join(claim['never_full'])}"
    yield "total", f"{len(report['claims'])} declared: {kinds}"


def _gib(count: int | None) -> str:
    return "unknown" if count is None else f"{math.floor(count / 2**30 * 10) / 10:.1f} GiB"
