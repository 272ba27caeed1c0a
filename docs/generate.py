"""MkDocs hook: what the site takes from the repository instead of repeating it.

README.md and its neighbours become pages. `<!-- overview -->`, `<!-- commands -->`, `<!-- formats -->`,
`<!-- claims FOLDER -->`, `<!-- planting FOLDER -->` and `<!-- by_hand -->` in a page are replaced by what the command
line, contracts/schema/, contracts/FOLDER/ and evidence/planting/ say when the site is built.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pygments.formatters import HtmlFormatter
from run_notebook import NOTEBOOK, as_markdown

from harness.cli import _group
from harness.contract.claim_folder import CONTRACT, NOTES, claim_of
from harness.tools.planting.scores import results_of

ROOT = Path(__file__).parents[1]
SCHEMAS = ROOT / "contracts" / "schema"
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
"""Files of the repository's root, and the pages that they become."""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages from the root, the notebook, the schemas, the notes on contracts, and the colours of code."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for path in sorted(SCHEMAS.glob("*.json")):
        files.append(File.generated(config, f"schema/{path.name}", abs_src_path=str(path)))
    for path in sorted((ROOT / "contracts").glob(f"*/*/{NOTES}")):
        files.append(
            File.generated(
                config, f"notes/{claim_of(path.with_name(CONTRACT))}.md", content=path.read_text(encoding="utf-8")
            )
        )
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    files.append(File.generated(config, "example.md", content=as_markdown(notebook)))
    files.append(File.generated(config, "pygments.css", content=HtmlFormatter().get_style_defs(".codehilite")))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in what is generated, and make links and fences those of the site."""
    roots = {page: source for source, page in PAGES.items()}
    place = roots.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    markdown = re.sub(r"^<!-- (\w+)(?: (\w+))? -->$", lambda mark: _generated(mark, markdown), markdown, flags=re.M)
    markdown = re.sub(r"(?<=\]\()([^)#\s:]+)(?=[)#])", lambda link: _on_site(link[1], place), markdown)
    # The tutorial's test reads the rest of an info string; Python-Markdown knows the language alone.
    return re.sub(r"^(```\w+) .*$", r"\1", markdown, flags=re.M)


def _on_site(target: str, place: str) -> str:
    """Where a link leads on the site that leads to a file of the repository in the file at `place`."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
    return PAGES.get(path, path.removeprefix("docs/"))


def _generated(mark: re.Match[str], page: str) -> str:
    match mark[1], mark[2]:
        case "overview", None:
            return "\n".join(_overview())
        case "commands", None:
            return "\n".join(_commands())
        case "formats", None:
            return "\n".join(_formats())
        case "claims", str(folder):
            return "\n".join(_claims(folder, page))
        case "planting", str(folder):
            return "\n".join(_planting(folder))
        case "by_hand", None:
            return "\n".join(_by_hand())
    raise PluginError(f"docs/generate.py does not know the mark {mark[0]}")


def _overview() -> Iterator[str]:
    """A table of what each command does."""
    root = click.Context(_group)
    commands = {name: _group.get_command(root, name) for name in _group.list_commands(root)}
    rows = [(f"`harness {name}`", _escaped(one.get_short_help_str(200))) for name, one in commands.items() if one]
    yield from _table(("command", "what it does"), rows)


def _commands() -> Iterator[str]:
    """A section for each command: its help, usage and options."""
    root = click.Context(_group, info_name="harness", **_group.context_settings)
    for name in _group.list_commands(root):
        command = _group.get_command(root, name)
        assert command is not None
        with click.Context(command, info_name=name, parent=root) as context:
            usage = command.get_usage(context).removeprefix("Usage: ")
            records = [one.get_help_record(context) for one in command.get_params(context)]
        yield f"## harness {name}\n\n```text\n{usage}\n```\n"
        for paragraph in re.split(r"\n\s*\n", (command.help or "").replace("\f", "")):
            # click keeps the line breaks of a paragraph that begins with \b.
            kept = paragraph.startswith("\b")
            yield f"```text\n{paragraph[1:].strip(chr(10))}\n```\n" if kept else f"{_escaped(paragraph)}\n"
        yield from _table(
            ("option", "meaning"), [(f"`{one[0]}`", _escaped(one[1])) for one in records if one and one[1]]
        )


def _formats() -> Iterator[str]:
    """A section for each schema: its version and every key."""
    for path in sorted(SCHEMAS.glob("*.json")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        name, version = schema["$id"].split(":")[-2:]
        yield f"## {schema['title']}\n\n{_escaped(schema['description'])}\n"
        yield f"Version {version}. Schema: [{path.name}](schema/{path.name}), `{schema['$id']}`.\n"
        yield from _table(("key", "type", "required", "meaning"), _keys(schema, ""))
        for title, part in schema.get("$defs", {}).items():
            if rows := list(_keys(part, "")):
                yield f"### {name}: {title}\n\n{_escaped(part.get('description', ''))}\n"
                yield from _table(("key", "type", "required", "meaning"), rows)


def _keys(schema: dict[str, Any], prefix: str) -> Iterator[tuple[str, ...]]:
    """A row for each key of an object, those of nested objects below it."""
    for key, part in schema.get("properties", {}).items():
        required = "yes" if key in schema.get("required", ()) else ""
        yield f"`{prefix}{key}`", _type(part), required, _escaped(part.get("description", ""))
        yield from _keys(part, f"{prefix}{key}.")
        yield from _keys(part.get("items") or {}, f"{prefix}{key}[].")


def _type(schema: Any) -> str:
    """What values a schema allows, in a few words."""
    match schema:
        case {"$ref": str(target)}:
            return f"`{target.rpartition('/')[2]}`"
        case {"const": value}:
            return f"`{json.dumps(value)}`"
        case {"enum": values}:
            return " or ".join(f"`{json.dumps(value)}`" for value in values)
        case {"type": "array", "items": dict(items)}:
            return f"array of {_type(items)}"
        case {"type": list(names)}:
            return " or ".join(names)
        case {"type": str(name)}:
            return name
        case {"oneOf": parts} | {"anyOf": parts} | {"allOf": parts}:
            return " or ".join(_type(part) for part in parts)
    return "any"


def _claims(folder: str, page: str) -> Iterator[str]:
    """A row for each contract of a family; the page must name every one of them."""
    rows = []
    for path in sorted((ROOT / "contracts" / folder).glob(f"*/{CONTRACT}")):
        contract = json.loads(path.read_text(encoding="utf-8"))
        if f"`{contract['id']}`" not in page:
            raise PluginError(f"docs: the page of contracts/{folder}/ does not say what {contract['id']} is about")
        needs = contract["profiles"].get("full", {}).get("requires", {})
        notes = f"[notes](notes/{claim_of(path)}.md)" if path.with_name(NOTES).exists() else ""
        target = _hardware(contract.get("target", {}))
        rows.append((f"`{contract['id']}`", target, _needs(needs), len(contract["mutants"]), notes))
    return _table(("claim", "speaks of", "full profile needs", "mutants", ""), rows)


def _planting(folder: str) -> Iterator[str]:
    """The totals of a family's campaigns, and their survivors with the reasons that authors give."""
    documents = {
        _campaign(path): json.loads(path.read_text(encoding="utf-8")) for path in results_of(ROOT / "evidence", folder)
    }
    if not documents:
        yield "No campaign is recorded.\n"
        return
    head = ("campaign", "profile", "score", *(name.replace("_", " ") for name in _COUNTS))
    yield from _table(head, [_totals(name, document) for name, document in documents.items()])
    for name, document in documents.items():
        for fate in ("survived", "not measured"):
            if ones := [one for one in document["defects"] if one["fate"] == fate]:
                yield f"Defects of `{name}` that {'survived' if fate == 'survived' else 'no claim measured'}:\n"
                yield from _table(("where", "defect", "reason"), [_survivor(one) for one in ones])


def _by_hand() -> Iterator[str]:
    """A row for each file of defects that authors wrote, beside the score of the machine's defects in the family."""
    rows = []
    for path in sorted((ROOT / "benchmarks" / "planted_by_hand").glob("*.json")):
        planted = len(json.loads(path.read_text(encoding="utf-8"))["patches"])
        kept = [*(ROOT / "evidence" / "planting").glob(f"*-{_BY_HAND}-{path.stem}-*.json")]
        if not kept:
            continue
        fates, machine = _fates(kept), Counter[str]()
        for family in {one.name.partition("-")[0] for one in kept}:
            machine += _fates(one for one in results_of(ROOT / "evidence", family) if f"-{_BY_HAND}-" not in one.name)
        row = (*(fates[name] for name in _DECIDED), planted - sum(fates.values()))
        rows.append((f"`{path.stem}`", planted, *row, _score(machine)))
    yield from _table(("file", "planted", *_DECIDED, "not decided", "killed of the machine's"), rows)


def _fates(results: Iterable[Path]) -> Counter[str]:
    """How many defects came to which fate in some campaigns."""
    totals = (json.loads(path.read_text(encoding="utf-8"))["total"] for path in results)
    return sum((Counter({key: total[key] for key in _DECIDED}) for total in totals), Counter())


def _score(fates: Counter[str]) -> str:
    tried = fates["killed"] + fates["survived"]
    return f"{fates['killed'] / tried:.1%} of {tried}" if tried else ""


def _campaign(path: Path) -> str:
    """The name of a result without its family: FAMILY-CAMPAIGN-COMMIT.json."""
    return path.stem.partition("-")[2]


def _totals(name: str, document: dict[str, Any]) -> tuple[object, ...]:
    """A row for a campaign."""
    total = document["total"]
    profiles = ", ".join(sorted({one["profile"] for one in document["claims"] if not one["obstacle"]}))
    score = "" if total["score"] is None else f"{total['score']:.1%}"
    return (f"`{name}`", profiles, score, *(total.get(key, "") for key in _COUNTS))


def _survivor(one: dict[str, Any]) -> tuple[str, ...]:
    before, after = (_code(one[key]) for key in ("before", "after"))
    place = "/".join(one["file"].split("/")[2:])  # without falsifiers/FAMILY/, which would widen the column
    where = f"`{place}:{one['line']}` ({one['operator']})"
    return where, f"{before} becomes {after}", _escaped(one["missed"] or "")


def _code(text: str) -> str:
    """Text as code in a cell of a table."""
    escaped = html.escape(" ".join(text.split()))
    return f"<code>{escaped.replace('|', '&#124;').replace('[', '&#91;')}</code>"  # neither a cell's end nor a link


_BY_HAND = "by-hand"
"""In the names of the results of `harness plant --patches`: FAMILY-by-hand-FILE-COMMIT.json."""
_DECIDED = ("killed", "survived", "equivalent")
_COUNTS = ("killed", "crashed", "survived", "not_measured", "equivalent")


def _hardware(target: dict[str, Any]) -> str:
    if "device" in target:
        return str(target["device"])
    if "compute_capability" in target:
        return f"compute capability {target['compute_capability']}"
    return {"cpu": "any CPU", "cuda": "any CUDA GPU"}.get(str(target.get("type")), "any device")


def _needs(requires: dict[str, Any]) -> str:
    needs = ["a CUDA GPU" if requires.get("device") == "cuda" else "any device"]
    needs += [f"{requires[key]} GiB of {what}" for key, what in _SIZES.items() if key in requires]
    needs += [f"Vulkan ({requires['vulkan']})"] if "vulkan" in requires else []
    return ", ".join(needs)


_SIZES = {"memory_gib": "memory", "disk_gib": "disk"}


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> Iterator[str]:
    lines = [head, ("---",) * len(head), *rows]
    yield "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def _escaped(text: str) -> str:
    """Text as Markdown that shows it as it stands, on one line; what is between backticks is code."""
    parts = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else _plain(part) for part in parts)


def _plain(text: str) -> str:
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", html.escape(text, quote=False))
