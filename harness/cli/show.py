"""`harness show ID`: shows a claim, its plan on this machine, and what would refute it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from harness.base.device import hardware
from harness.cli.options import allowed
from harness.contract import Contract, Profile
from harness.contract.clauses import SchemaClause
from harness.contract.other_subject import NamedSubject, kind, kinds, own_names
from harness.contract.project import Project
from harness.evidence import untrusted
from harness.evidence.bundle_layout import LOGS, MANIFEST
from harness.evidence.index import read, whole_runs
from harness.machine.host import Host, probe
from harness.machine.requirements import Requirements, shortfalls
from harness.report.messages import bound_text, number_text
from harness.report.terminal.printing import tell, tell_all, tell_json
from harness.running.plan import make_plan, option_for_target
from harness.running.request import RunRequest

__all__ = ["command"]


@click.command("show")
@click.argument("identifier", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print the contract as JSON.")
@click.option("--log", "as_log", is_flag=True, help="Print what the trials of its newest run did; ID can be a bundle.")
def command(identifier: str, as_json: bool, as_log: bool) -> None:
    """Show a claim: its text and sources, what will run here, and what would refute it.

    With --log, show the file trials.log of its newest bundle instead, or of the bundle that is named.
    """
    project = Project.find()
    if as_log:
        _show_log(Path(identifier) if (Path(identifier) / MANIFEST).is_file() else _newest(project, identifier))
        return
    contract = project.contract(identifier)
    if as_json:
        tell_json(contract.document)
    else:
        tell_all(_page(contract, probe(project.root), project))


def _newest(project: Project, identifier: str) -> Path:
    """Return the newest bundle of a claim in the project's evidence."""
    entries = read(project.evidence, identifier).entries
    if not entries:
        project.contract(identifier)  # refuses an unknown claim, and suggests the nearest
        raise click.ClickException(
            f"{identifier} has no bundle in {project.evidence}; harness run {identifier} makes one"
        )
    return max(entries, key=lambda entry: entry.when).path


def _show_log(bundle: Path) -> None:
    try:
        lines = untrusted.read(bundle, LOGS)[0].decode("utf-8", "replace").splitlines()
    except (OSError, untrusted.TooLarge) as error:
        raise click.ClickException(f"{bundle / LOGS} cannot be read: {error}") from error
    for line in (str(bundle), *lines):
        tell(line)


def _page(contract: Contract, host: Host, project: Project) -> Iterator[str]:
    yield f"{contract.id}  {contract.title}"
    yield f"{contract.spec}, {contract.issue}; {contract.path}"
    yield ""
    yield contract.claim
    yield ""
    for source in contract.document["sources"]:
        yield "from " + ", ".join(str(source[key]) for key in ("uri", "locator") if key in source)
    if contract.target:
        yield f"speaks of: {hardware(contract.target)}"
    if contract.stands_in_for:
        yield f"stands in for: {contract.stands_in_for}"
    for refutation in contract.refuted:
        yield (
            f"known refutation since {refutation.since} on {refutation.device}, {refutation.profile} profile, by "
            f"{', '.join(sorted(refutation.clauses))}: {refutation.explanation}"
        )
    for title, section in (
        ("What runs here", _course(contract, host, project)),
        ("What would refute it", _rules(contract)),
        ("What it must keep to", _bounds(contract)),
        ("What the falsifier must kill first", _mutants(contract)),
        ("What -P may change", _parameters(contract)),
    ):
        if lines := list(section):
            yield from ("", title, *lines)
    if contract.notes:
        yield ""
        yield "Notes"
        yield from (f"  {line}".rstrip() for line in contract.notes.strip().splitlines())
    yield ""
    yield f"Run it: harness run {contract.id}"


def _course(contract: Contract, host: Host, project: Project) -> Iterator[str]:
    plan = make_plan(contract, host, RunRequest())
    trials = 1 + len(contract.mutants)
    if plan.obstacle:
        yield f"  nothing: {plan.obstacle}"
    else:
        where = plan.device.name if plan.gpu is not None else f"the CPU ({plan.device.name})"
        yield f"  the {plan.profile.name} profile on {where}: {trials} trials with the mutants"
        if option := option_for_target(contract, host):
            yield f"  with {option} on {hardware(contract.target)}, which it speaks of"
    last = _last(contract, project)
    for profile in contract.profiles.values():
        yield from _profile(contract, profile, host, last.get(profile.name, ""))
    yield f"  {contract.falsifier} against {contract.subject}"
    taken = [cls for cls in map(kind, kinds()) if cls.is_taken(contract.falsifier, contract.path, project)]
    if taken:
        yield f"  {_outside(taken, project)}"
    alone = [profile.name for profile in contract.profiles.values() if profile.exclusive]
    where = "" if len(alone) == len(contract.profiles) else f" in the profile {alone[0]}" if alone else ""
    yield f"  on a device {f'of its own{where}' if alone else 'that other claims may share'}"


def _outside(taken: list[type[NamedSubject]], project: Project) -> str:
    """Return how to judge another subject, and which trainers the project describes."""
    forms = [f"{subject.kind()}:{subject.value}{' -P dir=RUN' if subject.is_over else ''}" for subject in taken]
    text = f"or against another subject: --subject {' or --subject '.join(forms)}"
    there = sorted(path.relative_to(project.root).as_posix() for path in project.root.glob("trainers/*.toml"))
    named = there if any(subject.value.endswith(".toml") for subject in taken) else []
    return f"{text}; {', '.join(named)} {'says' if len(named) == 1 else 'say'} how" if named else text


def _last(contract: Contract, project: Project) -> dict[str, str]:
    """Return duration and device of the newest run, by profile.

    Runs with other parameters and interrupted runs do not count.
    """
    statuses: dict[str, str] = {}
    for entry in whole_runs(read(project.evidence, contract.id).entries):
        if entry.subject == contract.subject:
            whole = "" if entry.mutants_skipped else f", all of them {number_text.duration(entry.seconds)},"
            took = f"the subject's took {number_text.duration(entry.trial_seconds)}{whole}"
            statuses[entry.profile] = f"{took} on {entry.device_class}, {entry.started[:10]}"
    return statuses


def _profile(contract: Contract, profile: Profile, host: Host, last: str) -> Iterator[str]:
    lacks = shortfalls(profile.requires, host)
    here = f"not here: {'; '.join(lacks)}" if lacks else "this machine has that"
    yield f"  {profile.name} needs {_requirements(profile.requires)}; {here}"
    most = f"at most {number_text.duration(profile.seconds)} a trial"
    yield f"    {most}; {last}" if last else f"    {most}"
    if profile.parameters:
        parameters = ", ".join(f"{name} {number_text.value(value)}" for name, value in profile.parameters.items())
        yield f"    {parameters}"
    if unjudged := contract.unjudged(profile.name):
        yield f"    omits {', '.join(sorted(profile.omits))}: {', '.join(unjudged)} not judged"


def _rules(contract: Contract) -> Iterator[str]:
    for rule in contract.rules:
        yield f"  {rule.id}: {rule.message}"
        yield f"      unless {rule.text}"
        if rule.source:
            yield f"      [{rule.source}]"
    builtin = ", ".join(contract.builtin_clauses)
    yield f"  any bound below, and the clauses of every claim: {builtin}"


def _bounds(contract: Contract) -> Iterator[str]:
    """Yield every bound. Types, and minimums of 0, share a line at the end."""
    types: dict[str, list[str]] = {}
    natural: list[str] = []
    by_place: dict[str, list[SchemaClause]] = {}
    for clause in contract.clauses:
        place = clause.id.rpartition(".")[0]
        if clause.keyword == "type":
            types.setdefault(clause.argument, []).append(place)
        elif clause.keyword == "minimum" and clause.argument == 0:
            natural.append(place)
        elif clause.keyword != "closed":
            by_place.setdefault(place, []).append(clause)
    width = max(map(len, by_place), default=0)
    for place, clauses in by_place.items():
        yield f"  {place:<{width}}  {', '.join(bound_text.of(clause.bound, clause.unit) for clause in clauses)}"
        if (meaning := contract.observation["properties"].get(place, {}).get("description")) is not None:
            yield f"      {meaning}"
        for source in dict.fromkeys(clause.source for clause in clauses if clause.source):
            yield f"      [{source}]"
    if natural:
        yield f"  at least 0: {', '.join(natural)}"
    text = "; ".join(f"{name}: {', '.join(places)}" for name, places in types.items())
    yield f"  types: {text}"


def _mutants(contract: Contract) -> Iterator[str]:
    for mutant in contract.mutants:
        yield f"  {mutant.id}: {mutant.defect}"
        needs = f"; needs {_requirements(mutant.requires)}" if mutant.requires else ""
        yield f"      must fail on {', '.join(mutant.violates)}{needs}"
        for patch in mutant.patches:
            yield f"      in {patch.module}:{patch.within}".rstrip(":")
            yield from (f"        - {line}" for line in patch.before.splitlines())
            yield from (f"        + {line}" for line in patch.after.splitlines())
        for name, ratios in contract.ratios(mutant.id).items():
            measured = ", ".join(f"{ratio:.3g} times the threshold of {clause}" for clause, ratio in ratios.items())
            yield f"      measured ({name}): {measured}"


def _parameters(contract: Contract) -> Iterator[str]:
    names = own_names(contract)
    width = max(map(len, names), default=0)
    for name in names:
        yield f"  {name:<{width}}  {allowed(contract, name)}".rstrip()


def _requirements(requires: Requirements) -> str:
    needs: Mapping[str, object] = requires
    return ", ".join(write(needs[name]) for name, write in _NEEDS.items() if name in needs)


def _modules(names: list[str]) -> str:
    *others, last = names
    return f"the Python modules {', '.join(others)} and {last}" if others else f"the Python module {last}"


_NEEDS: Mapping[str, Callable[[Any], str]] = {
    "device": lambda device: "a CUDA GPU" if device == "cuda" else "no GPU",
    "gpus": lambda count: f"{count} of them",
    "compute_capability": lambda least: f"compute capability {least} or newer",
    "memory_gib": lambda size: f"{size:g} GiB of memory",
    "disk_gib": lambda size: f"{size:g} GiB of free disk space",
    "vulkan": lambda kind: "the Vulkan adapter of a GPU" if kind == "gpu" else "a Vulkan adapter",
    "modules": _modules,
}
