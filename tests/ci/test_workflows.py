"""What the workflows must never do, by their files, and what their shell code does when it runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

import harness

ROOT = Path(__file__).parents[2] / ".github"
WORKFLOWS = sorted((ROOT / "workflows").glob("*.yml"))
ACTIONS = sorted((ROOT / "actions").glob("*/action.yml"))
HOSTED = re.compile(r"ubuntu-24\.04(-arm)?")

OWN_CODE_ALONE = (
    """contains(fromJSON('["push", "schedule", "workflow_dispatch", "merge_group"]'), github.event_name) """
    "|| (github.event_name == 'pull_request' && github.event.pull_request.head.repo.full_name == github.repository)"
)


def load(path: Path) -> dict[Any, Any]:
    document: dict[Any, Any] = yaml.safe_load(path.read_text())
    return document


def triggers(workflow: dict[Any, Any]) -> dict[str, Any]:
    """The triggers of a workflow; YAML 1.1 reads the key `on` as true."""
    found: dict[str, Any] = workflow[True]
    return found


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in WORKFLOWS:
        for name, job in load(path)["jobs"].items():
            yield f"{path.name} {name}", job


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, job in jobs():
        for step in job.get("steps", ()):
            yield name, step
    for path in ACTIONS:
        for step in load(path)["runs"]["steps"]:
            yield f"{path.parent.name}", step


def test_the_files_are_of_the_published_schemas() -> None:
    """The files that GitHub reads follow the published schemas that check-jsonschema has."""
    config = ROOT / "ISSUE_TEMPLATE" / "config.yml"
    forms = [path for path in (ROOT / "ISSUE_TEMPLATE").iterdir() if path != config]
    published = {
        "github-workflows": WORKFLOWS,
        "github-actions": ACTIONS,
        "dependabot": [ROOT / "dependabot.yml"],
        "github-issue-forms": forms,
        "github-issue-config": [config],
    }
    assert all(published.values())
    for schema, files in published.items():
        command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, files)]
        checked = subprocess.run(command, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout


def test_every_owned_folder_is_there() -> None:
    """A renamed folder would lose its owners without a word."""
    lines = [line for line in (ROOT / "CODEOWNERS").read_text().splitlines() if line and not line.startswith("#")]
    patterns = [line.split()[0] for line in lines]
    assert patterns[0] == "*"
    assert [pattern for pattern in patterns[1:] if not (ROOT.parent / pattern.strip("/")).is_dir()] == []


def test_the_code_of_a_fork_never_reaches_a_machine_of_ours() -> None:
    """Every job on a runner other than GitHub's has the guard. Exactly one such job exists."""
    guarded = []
    for name, job in jobs():
        runner = job.get("runs-on")
        if runner is None:
            continue  # calls another workflow, whose jobs are looked at themselves
        runners = job["strategy"]["matrix"]["runner"] if runner == "${{ matrix.runner }}" else [runner]
        if not all(isinstance(runner, str) and HOSTED.fullmatch(runner) for runner in runners):
            assert " ".join(job["if"].split()) == OWN_CODE_ALONE, name
            guarded.append(name)
    assert guarded == ["falsify.yml run"]


def test_no_workflow_is_started_by_strangers_with_our_rights() -> None:
    """No workflow is started by the end of another run, either."""
    for path in WORKFLOWS:
        assert not {"pull_request_target", "workflow_run", "issue_comment"} & triggers(load(path)).keys(), path.name


@pytest.mark.parametrize(
    ("event", "head", "status"),
    [
        ("push", "", 0),
        ("schedule", "", 0),
        ("workflow_dispatch", "", 0),
        ("merge_group", "", 0),
        ("pull_request", "team/project", 0),
        ("pull_request", "stranger/project", 1),
        ("pull_request", "", 1),
        ("pull_request_target", "team/project", 1),
        ("workflow_run", "", 1),
        ("issue_comment", "", 1),
    ],
)
def test_the_guard_fails_loudly_where_the_job_would_be_skipped(event: str, head: str, status: int) -> None:
    """A skipped job counts as passed; a deleted fork has no name."""
    (step,) = load(ROOT / "workflows" / "falsify.yml")["jobs"]["guard"]["steps"]
    environment = {"PATH": os.environ["PATH"], "EVENT": event, "HEAD": head, "GITHUB_REPOSITORY": "team/project"}
    done = subprocess.run(["bash", "-e", "-c", step["run"]], env=environment, capture_output=True, text=True)
    assert done.returncode == status
    assert ("does not run on a self-hosted runner" in done.stdout) == bool(status)


def test_rights_are_the_least() -> None:
    """Workflows have no rights by default, and a job that may write runs no code of a run.

    The jobs that write comments and alerts check nothing out. The job that keeps evidence runs on GitHub's machine,
    checks out the default branch, and treats what it received as an untrusted archive.
    """
    reading = {("contents", "read"), ("actions", "read")}
    writing = {("pull-requests", "write"), ("security-events", "write"), ("contents", "write")}
    writers = []
    for path in WORKFLOWS:
        workflow = load(path)
        assert workflow["permissions"] in ({}, {"contents": "read"}), path.name
        for name, job in workflow["jobs"].items():
            granted = job.get("permissions", {})
            assert set(granted.items()) <= reading | writing, (path.name, name)
            if "write" in granted.values():
                writers.append(f"{path.name} {name}")
                checks_out = any("checkout" in str(step.get("uses")) for step in job.get("steps", ()))
                assert checks_out == (name == "keep"), name
                assert HOSTED.fullmatch(job.get("runs-on", "ubuntu-24.04")), name
    assert writers == [
        "alerts.yml alerts",
        "comment.yml comment",
        "nightly.yml keep",
        "nightly.yml alerts",
        "pull-request.yml comment",
        "pull-request.yml alerts",
    ]
    keep = load(ROOT / "workflows" / "nightly.yml")
    assert set(triggers(keep)) == {"schedule", "workflow_dispatch"}
    (secret,) = [name for name, step in steps() if "secrets." in str(step)]
    assert secret == "nightly.yml keep"


def test_actions_of_others_are_pinned_by_commit() -> None:
    """A tag can be moved to other code. `./` is the caller's checkout; `$/` is this repository."""
    used = [(name, step["uses"]) for name, step in steps() if "uses" in step]
    used += [(name, job["uses"]) for name, job in jobs() if "uses" in job]
    assert "$/.github/actions/harness-run" in [action for _, action in used]
    for name, action in used:
        assert action.startswith("$/") or re.fullmatch(r"(actions|github)/[a-z/-]+@[0-9a-f]{40}", action), name
        if action.startswith("$/"):
            place = ROOT.parent / action.removeprefix("$/")
            assert place.is_file() or (place / "action.yml").is_file(), name


def test_pinned_actions_are_updated() -> None:
    """Dependabot looks into every folder that has actions, and each pin has its version beside it."""
    (update,) = load(ROOT / "dependabot.yml")["updates"]
    assert update["package-ecosystem"] == "github-actions"
    assert update["directories"] == ["/", "/.github/actions/*"]
    for path in (*WORKFLOWS, *ACTIONS):
        for line in re.findall(r"(?m)^[ -]+uses: .*@.*$", path.read_text()):
            assert re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


def test_every_run_asks_for_the_full_profile_on_a_gpu() -> None:
    """A fallback to the reduced profile on the CPU would be green. Only GitHub's own machine asks for that profile."""
    full = "--profile full --require-gpu"
    falsify = triggers(load(ROOT / "workflows" / "falsify.yml"))["workflow_call"]["inputs"]
    assert falsify["options"]["default"] == full
    assert load(ROOT / "actions" / "harness-run" / "action.yml")["inputs"]["options"]["default"] == full
    assert "options" not in load(ROOT / "workflows" / "pull-request.yml")["jobs"]["falsify"]["with"]
    nightly = load(ROOT / "workflows" / "nightly.yml")["jobs"]["falsify"]
    assert nightly["with"]["options"] == f"${{{{ matrix.host.options || '{full}' }}}}"
    hosts = json.loads(nightly["strategy"]["matrix"]["host"].partition("|| '")[2].rpartition("'")[0])
    assert [host["name"] for host in hosts if "options" in host] == ["cpu"]
    assert [host["labels"] for host in hosts if "self-hosted" not in host["labels"]] == [["ubuntu-24.04"]]


def test_another_label_cancels_no_run() -> None:
    """Every event joins a workflow's group. A job's group is joined only after its `if`."""
    workflow = load(ROOT / "workflows" / "pull-request.yml")
    assert "concurrency" not in workflow
    job = workflow["jobs"]["falsify"]
    assert "github.event.label.name == 'falsify'" in job["if"]
    assert job["concurrency"]["cancel-in-progress"] is True


def test_what_was_sealed_is_uploaded_however_the_run_ended() -> None:
    """Report and upload are steps of the job, which run after a time-out and a cancellation."""
    *_, run, report, upload = load(ROOT / "workflows" / "falsify.yml")["jobs"]["run"]["steps"]
    assert run["uses"].endswith("harness-run")
    assert (report["uses"].endswith("harness-report"), report["if"]) == (True, "always()")
    assert ("upload-artifact" in upload["uses"], upload["if"].startswith("always()")) == (True, True)
    assert run["with"]["minutes"] == "${{ inputs.minutes }}"


def test_what_a_night_keeps_the_next_run_reads() -> None:
    """One job writes the branch, and all runs read it. They trust only the key that signs."""
    nightly, pull = (load(ROOT / "workflows" / f"{name}.yml")["jobs"] for name in ("nightly", "pull-request"))
    (keep,) = [step for step in nightly["keep"]["steps"] if "SIGNING_KEY" in step.get("env", {})]
    for job in (nightly["falsify"], pull["falsify"]):
        assert job["with"]["evidence-branch"] == keep["env"]["BRANCH"]
        assert job["with"]["trusted-key"] == "${{ vars.HARNESS_EVIDENCE_KEY }}"


def test_the_virtual_environment_is_cached() -> None:
    """The key is Python's version and all requirements. On a self-hosted runner, install.sh keeps the environment."""
    (cache,) = [
        step for step in load(ROOT / "workflows" / "ci.yml")["jobs"]["check"]["steps"] if "/cache@" in str(step)
    ]
    assert cache["with"]["path"] == ".venv"
    for part in ("matrix.runner", "python-version", "constraints.txt", "pyproject.toml"):
        assert part in cache["with"]["key"]


def test_what_others_call_needs_nothing_of_their_checkout() -> None:
    """A default that exists only in this repository would fail everywhere else."""
    inputs = triggers(load(ROOT / "workflows" / "falsify.yml"))["workflow_call"]["inputs"]
    action = load(ROOT / "actions" / "harness-run" / "action.yml")["inputs"]
    assert {name for name, input_ in inputs.items() if input_.get("required")} == {"name", "runner"}
    assert inputs["install"]["default"] == action["install"]["default"]
    (place,) = re.findall(r'pip install .*"\$GITHUB_ACTION_PATH(/\S+)"', action["install"]["default"])
    assert Path(f"{ROOT}/actions/harness-run{place}", "harness").resolve() == Path(harness.__file__).parent
    assert set(inputs) - {"name", "runner"} == set(action) - {"harness"}


def test_an_auditor_of_workflows_finds_nothing() -> None:
    """zizmor looks for script injection, excess rights, unpinned actions, leftover tokens and more."""
    zizmor = next(file.locate() for file in metadata.files("zizmor") or () if file.name == "zizmor")
    command = [zizmor, "--offline", "--persona", "pedantic", "--min-severity", "low", "--no-progress", ROOT]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_no_script_has_values_pasted_into_it() -> None:
    """The name of a branch, or an input, could become code. Variables cannot."""
    for name, step in steps():
        assert "${{" not in step.get("run", ""), name


def test_checkouts_leave_no_token_behind() -> None:
    """No token stays in a checkout, because the code that runs next comes from outside."""
    for name, step in steps():
        if "checkout" in str(step.get("uses")):
            assert step["with"]["persist-credentials"] is False, name


@pytest.fixture
def comment(tmp_path: Path) -> Callable[[], subprocess.CompletedProcess[str]]:
    """Run the code that writes the comment; a script in place of `gh` records its arguments."""
    gh = tmp_path / "gh"
    gh.write_text('#!/bin/sh\ncase "$*" in *--paginate*) cat comments ;; *) echo "$*" >> calls ;; esac\n')
    gh.chmod(0o755)
    (tmp_path / "comments").touch()
    (tmp_path / "report").mkdir()
    step = load(ROOT / "workflows" / "comment.yml")["jobs"]["comment"]["steps"][-1]
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "NAME": "gx10", "NUMBER": "5", "GITHUB_RUN_ID": "9"}
    variables |= {"GITHUB_REPOSITORY": "team/project", "GITHUB_SERVER_URL": "https://github.com", "COMMIT": "c" * 40}
    command = ["bash", "-e", "-o", "pipefail", "-c", step["run"]]
    return lambda: subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("earlier", "method"), [("", "POST"), ("7\t<!-- other -->\n41\t{mark}\n42\t{mark}\n", "PATCH")]
)
def test_a_comment_replaces_the_one_before_it(
    tmp_path: Path, comment: Callable[[], subprocess.CompletedProcess[str]], earlier: str, method: str
) -> None:
    """The first line identifies the old comment."""
    mark = "<!-- falsifier-harness report gx10 -->"
    (tmp_path / "comments").write_text(earlier.format(mark=mark))
    (tmp_path / "report" / "comment.md").write_text("<!-- falsifier-harness report -->\n## 1 PASS\n")
    assert comment().returncode == 0
    (call,) = (tmp_path / "calls").read_text().splitlines()
    place = "issues/5/comments" if method == "POST" else "issues/comments/41"
    assert call == f"api --method {method} repos/team/project/{place} --field body=@body.md --silent"
    body = (tmp_path / "body.md").read_text().splitlines()
    assert (body[0], body[4]) == (mark, "## 1 PASS")
    assert body[1] == f"Commit {'c' * 40} on gx10:"
    assert "(https://github.com/team/project/actions/runs/9)" in body[-1]


def test_a_run_without_a_report_has_a_comment_too(
    tmp_path: Path, comment: Callable[[], subprocess.CompletedProcess[str]]
) -> None:
    """Without a new comment, the one on an older commit would stay."""
    (tmp_path / "report").rmdir()
    assert comment().returncode == 0
    body = (tmp_path / "body.md").read_text()
    assert f"Commit {'c' * 40} " in body
    assert "**Ended early**" in body


def test_a_report_that_is_a_link_is_no_comment(
    tmp_path: Path, comment: Callable[[], subprocess.CompletedProcess[str]]
) -> None:
    """The run that wrote it could point to this job's token."""
    (tmp_path / "secret").write_text("a token")
    (tmp_path / "report" / "comment.md").symlink_to(tmp_path / "secret")
    done = comment()
    assert (done.returncode, "no plain file" in done.stdout) == (1, True)
    assert not (tmp_path / "calls").exists()
    assert not (tmp_path / "body.md").exists()
