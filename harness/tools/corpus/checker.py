"""The interface to another checker: a function of one form of a case, called in a process of its own.

    def checker(form: Form) -> None:
        function = form.make()
        assert function(*arguments).isfinite().all()

It raises AssertionError where it finds a mistake, returns where it finds none, and raises `NotInScope` where it has
nothing to say. Any other exception counts as found, with its text: a subject that crashes is not accepted. An answer
that takes too long is not measured: it may be the machine that is slow.

As a program, it reads what `harness corpus run` asks from its input, and prints one line of JSON for each form.
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
    """The checker has nothing to say of this kind of subject. The text says why."""


@dataclass(frozen=True)
class Form:
    """One form of a case: with its mistake, or mended.

    Attributes:
        surface: function, trainer, suite or other.
        subject: the entry point; of the mended form, if that has one of its own.
        claims: the claims that apply, each with all its parameters. A function's have `against` and `example`.
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
        """Those of the first claim, with the switch."""
        return {**next(iter(self.claims.values())), "case": self.subject, "mended": self.mended}

    def make(self) -> Any:
        """The function, the files of the suite, or the trainer.

        Anything of the case that raises here is its own doing.
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
    """Ask in a fork of this process, since a subject may change torch itself."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.dup2(2, 1)  # what the subject prints is no answer
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
    """Answer for every form that is asked."""
    request = json.loads(sys.stdin.read())
    install([*map(Path, sys.argv[1:])])
    checker: Checker = resolve(request["checker"])
    for form in request["forms"]:  # here once, and not in each fork
        with suppress(Exception):
            resolve(form["subject"])
    with tempfile.TemporaryDirectory(prefix="harness-corpus-") as folder:
        for number, one in enumerate(request["forms"]):
            workspace = Path(folder) / str(number)
            workspace.mkdir()
            form = Form(**one, seed=request["seed"], workspace=workspace)
            print(json.dumps(_in_child(checker, form, request["seconds"])), flush=True)


if __name__ == "__main__":
    from harness.tools.corpus import checker as this  # the classes that checkers import, not those of __main__

    this.main()
