"""Every claim that a workflow asks of a host can run there, as far as modules and the kind of device decide."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from harness.contract import Contract
from harness.contract.project import Project

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"


@cache
def contracts() -> Sequence[Contract]:
    """All of this repository."""
    return Project.find(ROOT).load_all()[0]


@cache
def distributions() -> Mapping[str, list[str]]:
    """Those installed, by the packages that they have."""
    return metadata.packages_distributions()


def called(workflow: str) -> dict[str, str]:
    """What a workflow gives to falsify.yml."""
    document: dict[str, Any] = yaml.safe_load((WORKFLOWS / workflow).read_text())
    given: dict[str, str] = document["jobs"]["falsify"]["with"]
    return given


def hosts() -> Iterator[tuple[str, dict[str, str]]]:
    """Each host of the workflows, with its claims, options and commands of installation."""
    yield "pull request", {"options": "--profile full --require-gpu", **called("pull-request.yml")}
    nightly = (WORKFLOWS / "nightly.yml").read_text()
    given = called("nightly.yml")
    listed = re.search(r"vars\.HARNESS_HOSTS \|\| '(.*?)'\) \}\}", " ".join(nightly.split()))
    assert listed is not None
    for host in json.loads(listed[1]):
        yield host["name"], {key: host.get(key) or default(given[key]) for key in ("claims", "options", "install")}


def default(expression: str) -> str:
    """What an expression gives where the host states nothing."""
    match = re.fullmatch(r"\$\{\{ matrix\.host\.\w+ \|\| '(.*)' \}\}", expression)
    assert match is not None, expression
    return match[1]


def extras(install: str) -> set[str]:
    """The extras of this project that the commands install; those of `make`, too."""
    text = install + ((ROOT / "Makefile").read_text() if "make .venv/.installed" in install else "")
    commands = [line for line in re.split(r"\n|&&", text) if re.search(r"pip install .*(-e|--editable) ", line)]
    wanted = [line for line in commands if "trl" not in line and "mutation" not in line]  # of other targets
    return {name for line in wanted for found in re.findall(r"\.\[([\w,-]+)\]", line) for name in found.split(",")}


def installed(extra_names: set[str]) -> set[str]:
    """The distributions that come with extras of this project, with all that they need in turn."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *(project["optional-dependencies"][name] for name in extra_names)]
    pending = [Requirement(line) for group in groups for line in group]
    found: set[str] = set()
    while pending:
        one = pending.pop()
        name = canonicalize_name(one.name)
        if name in found:
            continue
        found.add(name)
        try:
            needed = map(Requirement, metadata.requires(name) or [])
        except metadata.PackageNotFoundError:
            continue  # what it needs is not known here
        pending += [other for other in needed if other.marker is None or other.marker.evaluate({"extra": ""})]
    return found


def lacking(modules: list[str], present: set[str]) -> list[str]:
    """The modules that no distribution has."""
    return [
        name
        for name in modules
        if not present.intersection(
            map(canonicalize_name, [name.replace(".", "-"), *distributions().get(name.partition(".")[0], [])])
        )
    ]


@pytest.mark.parametrize(("name", "host"), [*hosts()], ids=lambda one: one if isinstance(one, str) else "")
def test_no_claim_lacks_a_module_or_a_gpu(name: str, host: dict[str, str]) -> None:
    """A claim that a host could never run would make every night red."""
    claims, options = shlex.split(host["claims"]), shlex.split(host["options"])
    assert "--all" in claims
    left_out = {claims[index + 1] for index, word in enumerate(claims) if word == "--except"}
    profile = options[options.index("--profile") + 1]
    present = installed(extras(host["install"]))
    requires_of = {
        one.id: one.profiles[profile].requires
        for one in contracts()
        if profile in one.profiles and one.id not in left_out
    }
    assert len(requires_of) > len(contracts()) // 2
    assert {
        name: lacks for name, one in requires_of.items() if (lacks := lacking([*one.get("modules", [])], present))
    } == {}
    if "--require-gpu" not in options:
        assert [name for name, one in requires_of.items() if one["device"] == "cuda"] == []


def test_what_is_left_out_could_not_run() -> None:
    """A claim that a host leaves out, and that it could run, would go unseen."""
    for _, host in hosts():
        claims = shlex.split(host["claims"])
        for name in [claims[index + 1] for index, word in enumerate(claims) if word == "--except"]:
            (one,) = [contract for contract in contracts() if contract.id == name]
            assert lacking([*one.profiles["full"].requires.get("modules", [])], installed(extras(host["install"])))


def test_an_extra_that_is_not_installed_is_missed() -> None:
    assert lacking(["torch", "liger_kernel", "regex"], installed(extras('pip install -e ".[distill]"'))) == [
        "liger_kernel"
    ]
