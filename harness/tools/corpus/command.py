"""`harness corpus`: documented mistakes of the field, and how many of them the harness and other checkers catch."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from harness.base import regular_file, strictjson
from harness.base.strictjson import JsonObject
from harness.base.version import VERSION
from harness.base.vocabulary import ExitStatus
from harness.contract.project import Project
from harness.machine import git
from harness.report.terminal.printing import tell, tell_all
from harness.tools.atomic_file import write_file
from harness.tools.corpus import new_case
from harness.tools.corpus.campaign import Answer, Campaign, Judged, Round, ask_checker
from harness.tools.corpus.record import CASES, COSTS, KINDS, Case, RecordError, cases_of, sample
from harness.tools.corpus.results import (
    Fate,
    Results,
    code_digest,
    corpus_digest,
    document,
    read_back,
    table,
    table_of_groups,
)
from harness.tools.laid_out import laid_out

__all__ = ["CHECKERS", "command"]

CHECKERS: Final = tuple(
    f"falsifiers.corpus.checkers:{name}" for name in ("loss_goes_down", "assert_close", "kernelbench")
)
"""The other checkers that are asked by default."""

_kind = click.option("--kind", "kinds", multiple=True, type=click.Choice([*KINDS]), help="Only cases of this kind.")


@click.group("corpus", short_help="how many documented mistakes are caught")
def command() -> None:
    """Documented mistakes of the field: how many of them the harness and other checkers catch."""


def _chosen(root: Path, ids: tuple[str, ...], kinds: tuple[str, ...]) -> list[Case]:
    try:
        known = cases_of(root)
    except RecordError as error:
        raise click.ClickException(str(error)) from error
    if unknown := sorted({*ids} - {case.id for case in known}):
        raise click.BadParameter(f"there is no case {unknown[0]}; `harness corpus list` names them")
    return [case for case in known if (not ids or case.id in ids) and (not kinds or case.kind in kinds)]


@command.command("list")
@_kind
@click.option("--sort", type=click.Choice(["kind", "year", "cost"]), default="kind", show_default=True)
def list_(kinds: tuple[str, ...], sort: str) -> ExitStatus:
    """List the cases, each with its kind, year and cost, its source, and the claims that apply."""
    cases = _chosen(Project.find().root, (), kinds)
    if sort == "year":
        cases.sort(key=lambda case: case.year)
    elif sort == "cost":
        cases.sort(key=lambda case: [*COSTS].index(case.cost))
    for case in cases:
        claims = ", ".join(case.claims) or f"out of scope: {case.out_of_scope}"
        tell_all((f"{case.id}  {case.kind}  {case.year}  {case.cost}", f"  {case.title}"))
        tell_all((f"  {case.source}", f"  {claims}"))
    return ExitStatus.PASS


@command.command("run")
@click.argument("ids", nargs=-1, metavar="[CASE]…")
@_kind
@click.option(
    "--quick",
    is_flag=True,
    help="Few cases, of most kinds and claims: less than two minutes on two cores. No other checkers.",
)
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    type=click.Choice(["reduced", "full"]),
    default=["reduced"],
    show_default=True,
    help="Of the claims; can be given twice.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the trials of the first round."
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Rounds in each profile, each with the next seed.",
)
@click.option("-j", "--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="Trials side by side.")
@click.option(
    "--checker", "checkers", multiple=True, metavar="MODULE:NAME", help="Another checker to ask; by default, three."
)
@click.option("--no-checkers", is_flag=True, help="Ask no other checker.")
@click.option("--evidence", type=click.Path(path_type=Path), help="The folder for bundles; by default a temporary one.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the record of the run."
)
def run(
    ids: tuple[str, ...],
    kinds: tuple[str, ...],
    quick: bool,
    profiles: tuple[str, ...],
    seed: int,
    rounds: int,
    jobs: int,
    checkers: tuple[str, ...],
    no_checkers: bool,
    evidence: Path | None,
    json_file: Path | None,
) -> ExitStatus:
    """Run the claims that apply on every case, failing and mended; ask other checkers; print a table by kind.

    A case is caught if a claim is FAIL on its mistake, after which no other runs on it, and none is on the mended form.
    Mutants do not run: the contracts' own runs prove the falsifiers. FILE is written after each round. A run that was
    interrupted goes on after the last complete round, if you call it again with the same code and the same cases.

    Exit status: 0 if no mended form is refuted and exactly the misses that the records name are missed, else 1.
    """
    project = Project.find()
    cases = _chosen(project.root, ids, kinds)
    if quick:
        cases, no_checkers = sample(cases), True
    in_scope = [case for case in cases if not case.out_of_scope]
    chosen_checkers = () if no_checkers else (checkers or CHECKERS)
    about: JsonObject = {
        "version": VERSION, "revision": git.commit(project.root).value, "corpus": corpus_digest(project.root),
        "code": code_digest(project.root),
    }  # fmt: skip
    wanted = [Round(profile, seed + number) for number in range(rounds) for profile in profiles]
    results, about = _resumed(json_file, cases, chosen_checkers, wanted, about)
    started = time.monotonic() - about["seconds"]
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(len(CHECKERS)))  # they are asked while the claims run
        asking = {
            chosen_checker: pool.submit(_answers, project, chosen_checker, in_scope, seed)
            for chosen_checker in chosen_checkers
            if chosen_checker not in results.answers
        }
        folder = evidence or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="harness-corpus-")))
        left = [draw for draw in wanted if draw not in results.rounds]
        begun = Campaign.begun(project, in_scope if left else [], folder, jobs)
        for one, of_round in stack.enter_context(begun).judge(left, _print_verdict):
            judged = {
                case: {
                    form: [*results.judged.get(case, {}).get(form, ()), *verdicts] for form, verdicts in forms.items()
                }
                for case, forms in of_round.items()
            }
            results = Results(cases, [*results.rounds, one], judged, results.answers)
            _write_record(json_file, results, {**about, "seconds": round(time.monotonic() - started)})
        if asking:
            answers = {checker: of.result() for checker, of in asking.items()}
            results = replace(results, answers={**results.answers, **answers})
            _write_record(json_file, results, {**about, "seconds": round(time.monotonic() - started)})
    return _reported(results)


def _write_record(file: Path | None, results: Results, about: JsonObject) -> None:
    if file is not None:
        write_file(file, laid_out(document(results, about)))


def _resumed(
    file: Path | None, cases: list[Case], checkers: Sequence[str], rounds: Sequence[Round], about: JsonObject
) -> tuple[Results, JsonObject]:
    """What an interrupted run of the same cases, checkers and code left in the file; else nothing."""
    fresh = {**about, "started": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "seconds": 0}
    if file is None or not file.exists():
        return Results(cases, [], {}, {}), fresh
    try:
        content: Any = strictjson.loads(regular_file.read(file))
        if any(content.get(key) != value for key, value in about.items()):
            return Results(cases, [], {}, {}), fresh
        results = read_back(content, cases)
        if document(results, {name: content[name] for name in fresh}) != content:
            raise ValueError("it was changed")
    except (OSError, strictjson.JsonError, LookupError, TypeError, ValueError) as error:
        raise click.ClickException(f"{file} is no record of a run ({error}); name another file") from error
    if [*content["cases"]] != [case.id for case in cases] or not {*results.answers} <= {*checkers}:
        return Results(cases, [], {}, {}), fresh
    if not {*results.rounds} <= {*rounds}:
        return Results(cases, [], {}, {}), fresh
    return results, {**about, "started": content["started"], "seconds": content["seconds"]}


def _print_verdict(case: Case, form: str, judged: Judged) -> None:
    clauses = ", ".join(judged.clauses)
    tell(f"{case.id}  {form}  {judged.claim}  {judged.verdict}  {clauses[:200]}".rstrip(), err=True)


def _answers(project: Project, checker: str, cases: list[Case], seed: int) -> dict[str, tuple[Answer, Answer]]:
    answers = [*ask_checker(project, checker, cases, seed)]
    return {answer.case: (answer, other) for answer, other in zip(answers[::2], answers[1::2], strict=True)}


def _reported(results: Results) -> ExitStatus:
    fates, by_round = results.fates(), results.fates_by_round()
    profiles = dict.fromkeys(round_.profile for round_ in results.rounds)
    groups = {profile: [of for round_, of in by_round.items() if round_.profile == profile] for profile in profiles}
    for rows in ([*table(results.cases, fates)], [*table_of_groups(results.cases, groups)]):
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        tell_all("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    for case in results.cases:
        fate = fates[next(iter(fates))][case.id]
        if fate is not Fate.CAUGHT:
            tell(f"{fate}: {case.id}  {case.out_of_scope or case.missed}".rstrip())
    surprises = results.surprises()
    tell_all(surprises)
    return ExitStatus.FAIL if surprises else ExitStatus.PASS


@command.command("new")
@click.argument("identifier", metavar="ID")
@click.option("--kind", required=True, type=click.Choice([*KINDS]), help="Its folder.")
@click.option("--source", required=True, metavar="URL", help="Where the mistake is documented.")
@click.option("--surface", type=click.Choice(["function", "trainer", "suite", "other"]), default="function")
def new(identifier: str, kind: str, source: str, surface: str) -> ExitStatus:
    """Write the record of a new case, to be filled in, and show a subject to begin with."""
    root = Project.find().root
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", identifier):
        raise click.BadParameter(f"{identifier!r} has other characters than a-z, 0-9 and hyphens", param_hint="ID")
    file = root / CASES / kind / f"{identifier}.json"
    content = new_case.record(identifier, kind, source, surface)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as out:
            out.write(strictjson.dumps(content, indent=2) + "\n")
    except FileExistsError as error:
        raise click.ClickException(f"{file} is there already") from error
    tell(f"wrote {file.relative_to(root)}; fill in its texts. The cost is one of: {', '.join(COSTS)}")
    tell(f"Change this subject, and write it into falsifiers/corpus/{kind}.py and its __all__:")
    tell_all(["", *new_case.subject(identifier, surface).splitlines(), ""])
    tell("Change the claims if others speak of the property, and what they compare the subject with.")
    tell(f"Then: harness corpus run {identifier}")
    return ExitStatus.PASS
