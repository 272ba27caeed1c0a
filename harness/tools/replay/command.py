"""`harness replay BUNDLE`: runs the counterexample of a bundle again, against the present code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.base import strictjson
from harness.base.vocabulary import ExitStatus, Outcome
from harness.cli.options import device_option
from harness.cli.subject import checked_subject
from harness.contract.clauses import ClauseResult
from harness.contract.other_subject import Subject
from harness.contract.project import Project
from harness.execution.lease import Holder, WaitInterrupted, named
from harness.machine.host import probe
from harness.report.messages import bound_text, number_text, reason_text
from harness.report.terminal.printing import tell, tell_all, tell_json
from harness.report.terminal.run_text import waiting_text
from harness.running.request import RunRequest
from harness.tools.replay.case_replay import Replay, ReplayRefused, Sealed, open_bundle, replay

__all__ = ["command"]


@click.command("replay", short_help="run the case that refuted a claim again")
@click.argument("bundle", metavar="BUNDLE", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--mutant", metavar="ID", help="The counterexample that killed this mutant, against that mutant.")
@click.option("--subject", metavar="MODULE:NAME", help="Against this subject of the project instead.")
@device_option
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(bundle: Path, mutant: str | None, subject: str | None, device: str, as_json: bool) -> ExitStatus:
    """Run only the counterexample of a bundle again, against the present code.

    The subject is the one that it refuted: the claim's own, the mutant, or the one that --subject named.

    Exit status: 1 if the case still refutes the claim; 0 if it no longer does; 2 if the bundle is unsound or has no
    counterexample, or if the claim changed too much; 3 if the case cannot run here; 130 if interrupted.
    """
    project = Project.find()
    request = RunRequest(
        device=device, subject=None if subject is None else Subject.at(checked_subject(subject, project))
    )
    try:
        sealed = open_bundle(bundle, mutant)
        replayed = replay(sealed, project, probe(project.root), request, _waiting)
    except WaitInterrupted as interrupted:
        tell(f"harness: {interrupted}", err=True)
        return ExitStatus.INTERRUPTED
    except ReplayRefused as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        _print_json(sealed, replayed)
    else:
        _show(sealed, replayed)
    statuses = {Outcome.PASS: ExitStatus.PASS, Outcome.FAIL: ExitStatus.FAIL}
    return statuses.get(replayed.outcome, ExitStatus.NOT_MEASURED)


def _waiting(holders: tuple[Holder, ...]) -> None:
    tell(waiting_text(named(holders)), err=True)


def _show(sealed: Sealed, replayed: Replay) -> None:
    case, record = sealed.counterexample, sealed.record
    lines = [
        f"{record.id}  {record.title}",
        f"  case {strictjson.dumps(case.case)}",
        f"  then {', '.join(case.clauses)} failed ({record.run}{f', mutant {sealed.mutant}' if sealed.mutant else ''})",
        f"  now  {replayed.subject}, {replayed.profile} profile on {replayed.device}",
        *(f"  {_line(clause)}" for clause in replayed.clauses),
        f"  {_CONCLUSIONS[replayed.outcome]}",
    ]
    tell_all(lines)


_CONCLUSIONS = {
    Outcome.FAIL: "it still refutes the claim",
    Outcome.PASS: "it no longer refutes the claim",
    Outcome.NOT_MEASURED: "it could not be run, so nothing is known",
}


def _line(clause: ClauseResult) -> str:
    bound = bound_text.of(clause.bound, clause.unit)
    parts = [f"{clause.outcome:<12}", clause.id, number_text.value(clause.value, clause.unit), bound]
    return "  ".join(parts) + (f"  ({reason_text.of(clause.reason)})" if clause.reason else "")


def _print_json(sealed: Sealed, replayed: Replay) -> None:
    document: dict[str, Any] = {
        "format": 1,
        "id": sealed.record.id,
        "run": sealed.record.run,
        "mutant": sealed.mutant,
        "counterexample": sealed.counterexample.to_json(),
        "subject": replayed.subject,
        "profile": replayed.profile,
        "device": replayed.device,
        "outcome": str(replayed.outcome),
        "clauses": [
            {
                "id": clause.id,
                "outcome": str(clause.outcome),
                "value": clause.value,
                "bound": clause.bound and clause.bound.to_json(),
                "reason": reason_text.of(clause.reason),
            }
            for clause in replayed.clauses
        ],
    }
    tell_json(document)
