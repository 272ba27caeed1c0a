"""The interface of other checkers: a function of one form of a case, called in a separate process.

    def checker(form: Form) -> None:
        function = form.make()
        assert function(*arguments).isfinite().all()

A checker raises AssertionError if it finds a mistake, returns if it finds none, and raises `NotInScope` if it does not
apply. Any other exception counts as found, with its text, because a crashing subject is not accepted. A checker that
takes too long is not measured, because the machine may be slow. As a program, this module reads the request of `harness
corpus run` from stdin, and prints one line of JSON for each form.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.authoring.setting import Setting
from harness.base.shortening import described
from harness.base.strictjson import JsonObject
from harness.contract.entry_point import resolve
from harness.contract.project_importer import install

__all__ = ["Checker", "Form", "NotInScope"]


class NotInScope(Exception):
    """The checker does not apply to this kind of subject. The text states why."""


@dataclass(frozen=True)
class Form:
    """One form of a case: with its mistake, or mended.

    Attributes:
        surface: function, trainer, suite or other.
        subject: the entry point; that of the mended form, if it has a separate one.
        claims: the applicable claims, each with all its parameters. A function's have `against` and `example`.
        workspace: an empty folder.
    """

    case: str
    kind: str
    surface: str
    subject: str
    mended: bool
    claims: Mapping[str, JsonObject]
    seed: int
    workspace: Path

    @property
    def parameters(self) -> JsonObject:
        """The parameters of the first claim, with `mended`."""
        return {**next(iter(self.claims.values())), "case": self.subject, "mended": self.mended}

    def make(self) -> Any:
        """Build the function, the files of the suite, or the trainer.

        An exception of the case's code here is its fault.
        """
        made = resolve(self.subject)
        if self.surface in ("function", "suite"):
            return made(self.mended)
        return made(Setting(self.parameters, "cpu", self.seed, self.workspace, self.workspace.parent / "cache"))


Checker = Callable[[Form], None]


def _answer(checker: Checker, form: Form) -> dict[str, Any]:
    try:
        checker(form)
    except NotInScope as error:
        answer, reason = "not in scope", str(error)
    except BaseException as error:
        answer, reason = "found", described(error)[:200]
    else:
        answer, reason = "accepted", ""
    return {"case": form.case, "mended": form.mended, "answer": answer, "reason": reason}


def _in_child(checker: Checker, form: Form, seconds: float) -> dict[str, Any]:
    """Run the checker in a fork of this process, because a subject may change torch itself."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.dup2(2, 1)  # output of the subject is no result
        with os.fdopen(writing, "w") as out:
            out.write(json.dumps(_answer(checker, form)))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        is_late = not select.select([answers], [], [], seconds)[0]
        if is_late:
            os.kill(child, signal.SIGKILL)
        text = answers.read()
    os.waitpid(child, 0)
    if text:
        answer: dict[str, Any] = json.loads(text)
        return answer
    outcome = ("not measured", f"no answer in {seconds} s") if is_late else ("found", "it ended without an answer")
    return {"case": form.case, "mended": form.mended, "answer": outcome[0], "reason": outcome[1]}


def main() -> None:
    """Check every requested form."""
    request = json.loads(sys.stdin.read())
    install([*map(Path, sys.argv[1:])])
    checker: Checker = resolve(request["checker"])
    for form in request["forms"]:  # once here instead of in each fork
        with suppress(Exception):
            resolve(form["subject"])
    with tempfile.TemporaryDirectory(prefix="harness-corpus-") as folder:
        for number, one in enumerate(request["forms"]):
            workspace = Path(folder) / str(number)
            workspace.mkdir()
            form = Form(**one, seed=request["seed"], workspace=workspace)
            print(json.dumps(_in_child(checker, form, request["seconds"])), flush=True)


if __name__ == "__main__":
    from harness.tools.corpus import checker as this  # the classes that checkers import, instead of those of __main__

    this.main()
