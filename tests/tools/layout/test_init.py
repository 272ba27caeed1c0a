"""`harness init` as a user types it, in other people's repositories."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import ExitStatus
from tests.cli.folders import contents
from tests.cli.harness_command import harness

SCHEMAS = sorted(path.name for path in (Path(__file__).parents[3] / "contracts" / "schema").glob("*.schema.json"))
THEIRS = b'# ours\r\n[project]\r\nname = "theirs"\r\n\r\n[tool.black]\r\nline-length = 99'


def settings(folder: Path) -> dict[str, object]:
    """[tool.harness] as TOML reads it."""
    table: dict[str, object] = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["tool"]["harness"]
    return table


def test_an_empty_folder(tmp_path: Path) -> None:
    """It makes and names everything that a project needs, and prints the next steps."""
    done = harness(tmp_path, "init")
    assert (done.returncode, done.stderr) == (ExitStatus.PASS, "")
    files = [path for path, content in contents(tmp_path).items() if content is not None]
    made = [
        *(f"contracts/schema/{name}" for name in SCHEMAS),
        "falsifiers/__init__.py",
        "evidence/.gitignore",
        "pyproject.toml",
        ".gitattributes",
    ]
    assert sorted(files) == sorted(made)
    lines = done.stdout.splitlines()
    assert lines[:-2] == [f"wrote {path}" for path in made]
    assert lines[-1].startswith("Now make a claim: harness new F-")
    assert settings(tmp_path) == {"contracts": "contracts", "evidence": "evidence", "pythonpath": ["."]}


def test_the_folder_named(tmp_path: Path) -> None:
    """DIR becomes a project; nothing is written elsewhere."""
    (tmp_path / "theirs").mkdir()
    assert harness(tmp_path, "init", "theirs").returncode == ExitStatus.PASS
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]
    assert harness(tmp_path, "init", "nowhere").returncode == ExitStatus.REFUSED


@pytest.mark.parametrize(
    "before", [b"", THEIRS, THEIRS + b"\r\n", THEIRS.replace(b"\r\n", b"\n"), b"tool.black = {}\n"]
)
def test_what_they_wrote_is_kept(tmp_path: Path, before: bytes) -> None:
    """Every byte of the file is kept. The table is added with the file's own line ends."""
    pyproject = tmp_path / "pyproject.toml"
    pyproject.write_bytes(before)
    done = harness(tmp_path, "init")
    assert done.returncode == ExitStatus.PASS, done.stderr
    assert "added [tool.harness] to pyproject.toml" in done.stdout
    after = pyproject.read_bytes()
    assert after.startswith(before)
    assert after.count(b"\r\n") == (after.count(b"\n") if b"\r\n" in before else 0)
    document = tomllib.loads(after.decode())
    assert document["tool"].pop("harness")["contracts"] == "contracts"
    assert {"tool": {}, **tomllib.loads(before.decode())} == document


def test_code_in_src(tmp_path: Path) -> None:
    """Claims are about code that can be imported, and many projects keep it in src/."""
    (tmp_path / "src").mkdir()
    harness(tmp_path, "init")
    assert settings(tmp_path)["pythonpath"] == [".", "src"]


def test_a_claim_can_be_made_at_once(tmp_path: Path) -> None:
    """The project is found from a subfolder and has no findings."""
    harness(tmp_path, "init")
    assert harness(tmp_path / "falsifiers", "new", "F-THEIRS-ONE-001").returncode == ExitStatus.PASS
    assert harness(tmp_path, "lint").returncode == ExitStatus.PASS


@pytest.mark.parametrize(
    "pyproject",
    [
        "[tool.harness]\n",
        'tool.harness.contracts = "x"\n',
        "[tool]\nharness = 1\n",
        "tool = {black = {}}\n",
        "tool = 1\n",
        "this is no TOML",
        "\ufeff[project]\n",
    ],
)
def test_a_pyproject_that_is_refused(tmp_path: Path, pyproject: str) -> None:
    """It has the table already, or cannot hold it: exit status 2, nothing written."""
    (tmp_path / "pyproject.toml").write_text(pyproject, "utf-8")
    before = contents(tmp_path)
    done = harness(tmp_path, "init")
    assert (done.returncode, done.stdout) == (ExitStatus.REFUSED, "")
    assert "Traceback" not in done.stderr
    assert contents(tmp_path) == before


def test_twice(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """The second run says that this is a project, and changes nothing."""
    harness(tmp_path, "init")
    before = contents(tmp_path)
    done = harness(tmp_path, "init")
    assert done.returncode == ExitStatus.REFUSED
    assert done.stderr.replace(str(tmp_path), "PROJECT") == snapshot
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "path", ["falsifiers/__init__.py", "evidence/.gitignore", "contracts/schema/contract.schema.json"]
)
def test_nothing_is_overwritten(tmp_path: Path, path: str) -> None:
    """If one of the files exists, none is written, and pyproject.toml stays as it is."""
    (tmp_path / "pyproject.toml").write_bytes(THEIRS)
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text("mine\n")
    before = contents(tmp_path)
    done = harness(tmp_path, "init")
    assert done.returncode == ExitStatus.REFUSED
    assert path in done.stderr
    assert contents(tmp_path) == before


@pytest.mark.parametrize("path", ["contracts", "falsifiers", "evidence"])
def test_a_failure_half_way_leaves_nothing(tmp_path: Path, path: str) -> None:
    """A failure half way leaves nothing: here a file stands where a folder is needed."""
    (tmp_path / "pyproject.toml").write_bytes(THEIRS)
    (tmp_path / path).write_text("not a folder\n")
    before = contents(tmp_path)
    assert harness(tmp_path, "init").returncode == ExitStatus.REFUSED
    assert contents(tmp_path) == before


def test_git_takes_a_bundle_whole(tmp_path: Path) -> None:
    """Many repositories ignore *.log and build/. A bundle without its logs would be unsound."""
    (tmp_path / ".gitignore").write_text("*.log\n*.csv\nbuild/\n")
    harness(tmp_path, "init")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)

    def ignored(path: str) -> bool:
        done = subprocess.run(["git", "check-ignore", "-q", path], cwd=tmp_path, check=False)
        return done.returncode == 0

    assert ignored("some.log")
    assert not ignored("evidence/PMAT-1/F-A/2026-cpu-abc/trials.log")
    assert not ignored("evidence/PMAT-1/F-A/2026-cpu-abc/artifacts/build/metrics.csv")
    assert ignored("evidence/PMAT-1/F-A/.unfinished-2026-cpu-abc/trials.log")


def attributes_of(folder: Path, path: str) -> dict[str, str]:
    """Git's attributes of a file: whether its diff is folded, and whether its line ends are converted."""
    command = ["git", "check-attr", "-z", "linguist-generated", "text", "--", path]
    words = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.split("\0")
    return dict(zip(words[1::3], words[2::3], strict=True))


@pytest.mark.parametrize("before", [None, b"", b"* text=auto", b"* text=auto\r\n*.bat eol=crlf\r\n"])
def test_git_folds_bundles_in_diffs(tmp_path: Path, before: bytes | None) -> None:
    """Every byte of an existing .gitattributes is kept. The new line concerns bundles only."""
    attributes = tmp_path / ".gitattributes"
    if before is not None:
        attributes.write_bytes(before)
    done = harness(tmp_path, "init")
    assert ("added evidence/** to .gitattributes" in done.stdout) == (before is not None)
    after = attributes.read_bytes()
    assert after.startswith(before or b"")
    assert after.count(b"\r\n") == (after.count(b"\n") if b"\r\n" in (before or b"") else 0)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    bundle = attributes_of(tmp_path, "evidence/PMAT-1/F-A/2026-cpu-abc/record.json")
    assert bundle == {"linguist-generated": "true", "text": "unset"}
    theirs = attributes_of(tmp_path, "src/theirs.py")
    assert theirs == {"linguist-generated": "unspecified", "text": "auto" if before else "unspecified"}


def test_a_line_for_bundles_is_kept(tmp_path: Path) -> None:
    """A project may choose to show its bundles in diffs."""
    attributes = tmp_path / ".gitattributes"
    attributes.write_text("evidence/** -text\n")
    assert harness(tmp_path, "init").returncode == ExitStatus.PASS
    assert attributes.read_text() == "evidence/** -text\n"


@pytest.mark.parametrize("content", [b"\xff\xfe", None])
def test_attributes_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    """The file is not text, or is a folder: exit status 2, nothing written."""
    if content is None:
        (tmp_path / ".gitattributes").mkdir()
    else:
        (tmp_path / ".gitattributes").write_bytes(content)
    before = contents(tmp_path)
    done = harness(tmp_path, "init")
    assert done.returncode == ExitStatus.REFUSED
    assert ".gitattributes" in done.stderr
    assert "Traceback" not in done.stderr
    assert contents(tmp_path) == before
