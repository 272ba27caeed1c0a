"""Commands and kinds of subject of other distributions, found as entry points."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.base.vocabulary import ExitStatus
from tests.cli.harness_command import COMMAND, environment
from tests.cli.toy_claim import CLAIM
from tests.contracts import IDENTIFIER
from tests.contracts import write_project as write_demo
from tests.evidence.factory import sealed
from tests.execution.projects import write_project

ROOT = Path(__file__).parents[2]
GREETS = "[harness.commands]\ngreet = greeter:command\n"
GREET = """
import click

@click.command("greet", short_help="greet somebody")
@click.argument("name")
def command(name):
    print(f"hello {name}")
"""


def install(folder: Path, distribution: str, entries: str, **modules: str) -> None:
    """Write a distribution as pip would install it."""
    metadata = folder / f"{distribution}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(entries)
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)


def harness(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command with the distributions of the folder."""
    path = os.pathsep.join([str(folder / "site"), str(ROOT)])
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env={**environment(folder), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_command_of_another_distribution(tmp_path: Path) -> None:
    """It is listed, runs, and cannot replace a command of the core."""
    install(tmp_path / "site", "greeting", f"{GREETS}list = greeter:command\n", greeter=GREET)
    assert harness(tmp_path, "greet", "Ada").stdout == "hello Ada\n"
    output = harness(tmp_path, "--help").stdout
    assert "  greet          greet somebody\n" in output
    assert "List the installed claims" in harness(tmp_path, "list", "--help").stdout


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import nowhere_to_be_found", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("command = print", "greet of greeting (greeter:command) is no click command"),
    ],
)
def test_a_command_that_cannot_be_imported(source: str, said: str, tmp_path: Path) -> None:
    """The message names its distribution, and other commands work."""
    install(tmp_path / "site", "greeting", GREETS, greeter=source)
    done = harness(tmp_path, "greet", "Ada")
    assert done.returncode == ExitStatus.REFUSED
    assert said in done.stderr
    assert "greeting (greeter:command)" in done.stderr
    output = harness(tmp_path, "--help").stdout
    assert "cannot be used; `harness greet` says why" in output
    assert "predict the memory" in output


def test_a_defect_of_a_plugin_is_not_the_harness_s(tmp_path: Path) -> None:
    """The last line of a crash names the distribution whose code raised the error."""
    entries = f"{GREETS}[harness.reports]\ncsv = greeter:command\n"
    install(tmp_path / "site", "greeting", entries, greeter=f"{GREET}    raise ValueError\n")
    done = harness(tmp_path, "greet", "Ada")
    assert done.returncode == ExitStatus.NOT_MEASURED
    assert "this is a defect of greeting; nothing counts as measured" in done.stderr
    write_demo(tmp_path)
    refused = harness(tmp_path, "report", str(tmp_path), "--csv", "-")
    assert refused.returncode == ExitStatus.REFUSED
    assert "csv of greeting (greeter:command) is no report: it has no about, check, write" in refused.stderr


def test_two_distributions_with_one_name(tmp_path: Path) -> None:
    """Neither is called, and the message names both."""
    for name in ("greeting", "salute"):
        install(tmp_path / "site", name, GREETS, greeter=GREET)
    done = harness(tmp_path, "greet", "Ada")
    assert done.returncode == ExitStatus.REFUSED
    assert "greet is declared by greeting (greeter:command) and salute (greeter:command)" in done.stderr


def test_a_checkout_that_is_not_installed(tmp_path: Path) -> None:
    """Its tools are those of its pyproject.toml."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "harness").symlink_to(ROOT / "harness")
    text = (ROOT / "pyproject.toml").read_text()
    (checkout / "pyproject.toml").write_text(text.replace("\ntrainer = ", "\ncoach = "))
    done = subprocess.run(
        [sys.executable, "-m", "harness", "--help"],
        cwd=checkout,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "\n  coach " in done.stdout
    assert "\n  trainer " not in done.stdout


SCRIPTS = """
from harness.contract.other_subject import NamedSubject, SubjectRefused

class Script(NamedSubject):
    value, adapter = "NAME", "scripts:Script"
    why_not_isolated = "a script has a process of its own"
    sources = {}

    def __init__(self, value, folder, project):
        if not value:
            raise SubjectRefused("name a script: script:NAME")
        self.name, self.parameters = value, {"drops": 0}
"""
ADAPTER = """
from falsifiers.demo.sorting import Sorter

class Script(Sorter):
    def sort(self, items):
        return sorted(items)[self.setting.parameters["drops"]:]
"""


def test_a_kind_of_subject_of_another_distribution(tmp_path: Path) -> None:
    """It is judged through the adapter beside the falsifier, and named in the evidence with its parameters."""
    install(tmp_path / "site", "scripting", "[harness.subjects]\nscript = scripting:Script\n", scripting=SCRIPTS)
    write_demo(tmp_path)
    (tmp_path / "falsifiers" / "demo" / "scripts.py").write_text(ADAPTER)
    run = ("run", IDENTIFIER, "--subject", "script:mine", "--no-mutants")
    assert harness(tmp_path, *run).returncode == ExitStatus.PASS
    assert harness(tmp_path, *run, "-P", "drops=1").returncode == ExitStatus.FAIL
    (bundle, *_) = sorted((tmp_path / "evidence").glob("*/*/*"), key=lambda path: path.stat().st_mtime)
    record = json.loads((bundle / "record.json").read_text())
    assert record["subject_parameters"] == {"trainer": "mine", "drops": 0}
    assert "--subject script:mine" in record["command"]
    assert IDENTIFIER in harness(tmp_path, "list", "--subject", "script").stdout
    assert "script:NAME" in harness(tmp_path, "show", IDENTIFIER).stdout
    refused = harness(tmp_path, "run", IDENTIFIER, "--subject", "script:")
    assert (refused.returncode, "name a script" in refused.stderr) == (ExitStatus.REFUSED, True)


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    """Its command and its report work as the page says."""
    page = (ROOT / "docs" / "commands.md").read_text()
    (declared,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (source,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    entries = re.sub(r'\[project\.entry-points\."(.*)"\]', r"[\1]", declared).replace('"', "")
    install(tmp_path / "site", "verdicts", entries, verdicts=source)
    bundle = sealed(tmp_path, run="a").relative_to(tmp_path)
    assert harness(tmp_path, "verdicts", "evidence").stdout == f"{bundle} PASS\n"
    done = harness(tmp_path, "report", "evidence", "--csv", "verdicts.csv")
    assert done.returncode == ExitStatus.PASS
    assert (tmp_path / "verdicts.csv").read_text() == "F-DEMO-SORT-001,PASS\n"
    output = harness(tmp_path, "report", "--help").stdout
    assert re.search(r"--csv TARGET +Write the verdict of each bundle\.", output)
    unknown = harness(tmp_path, "report", "evidence", "--xml", "x")
    assert (unknown.returncode, "no such option '--xml'" in unknown.stderr.lower()) == (ExitStatus.REFUSED, True)


def test_what_listens_to_a_run(tmp_path: Path) -> None:
    """The handler of another distribution hears each event of a run; one that returns None hears nothing."""
    source = """
def handler():
    return lambda event: print("heard", type(event).__name__, flush=True)

def silent():
    return None
"""
    install(tmp_path / "site", "ears", "[harness.handlers]\near = ears:handler\nsilent = ears:silent\n", ears=source)
    write_project(tmp_path)
    heard = [line.split()[1] for line in harness(tmp_path, "run", CLAIM).stdout.splitlines() if "heard " in line]
    assert (heard[0], heard[-1]) == ("RunStarted", "RunFinished")
