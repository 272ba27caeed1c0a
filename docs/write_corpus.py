"""docs/corpus.md: the documented mistakes of falsifiers/corpus/, and what came of the last recorded run.

    harness corpus run --json falsifiers/corpus/results.json
    python docs/write_corpus.py

tests/tools/corpus/test_page.py compares the page with the records and the results.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from harness.tools.corpus.record import COSTS, KINDS, Case, cases_of
from harness.tools.corpus.results import Fate, corpus_digest, table

__all__ = ["PAGE", "RESULTS", "page"]

_ROOT: Final = Path(__file__).parents[1]
PAGE: Final = Path(__file__).parent / "corpus.md"
RESULTS: Final = _ROOT / "falsifiers" / "corpus" / "results.json"

_HEAD: Final = """\
# A corpus of documented mistakes

<!-- `python docs/write_corpus.py` writes this page from falsifiers/corpus/. -->

How many of the field's real mistakes does a harness catch? Each case is a documented one: a record with its public
source, and a minimal subject that fails in that way, with a switch to its mended form. The claims that apply run on
both. A case is caught if a claim is FAIL on the mistake and none is on the mended form; a FAIL on the mended form is a
false alarm.

```sh
harness corpus list --sort year                    # or kind, or cost
harness corpus run                                 # half an hour on two cores; --quick takes a few minutes
harness corpus run --checker mine.checks:close     # ask your own checker about the same cases
```

## Results

{circumstances}

{table}

A share counts the cases in scope. The three others are a smoke test whose loss must fall, or whose suite must be green;
`torch.testing.assert_close` with its default tolerances, on outputs and gradients of one example; and KernelBench's
check of correctness, written anew from its description. They look at fewer kinds of subjects. A mistake that is plain
in one example is found by all that look: the minimal subjects favour simple checks. What needs a history, strides,
other sizes or a whole training is not.

What the harness misses, or cannot judge here:

{missed}

The results are a JSON record, `falsifiers/corpus/results.json`, and not a bundle: it has the verdict of each claim on
each form, the clauses that failed, and the digest of each bundle's manifest. {bundles} bundles would be too many to
keep. The contracts' own runs prove the falsifiers; here, mutants do not run, and no subject of the corpus is a mutant
of a contract.

## Add a case

1. `harness corpus new ID --kind KIND --source URL` writes its record. Fill in what was believed, what was true, who
   noticed and how late. The cost is one of these: {costs}.
2. Write the subject into `falsifiers/corpus/KIND.py`: a function of `mended` that returns a function of tensors or the
   files of a suite, or a subclass of a reference trainer with `Switch` before it.
3. Name the claims that speak of the property. A function needs its `against` and `example`. Say `out_of_scope` if no
   claim can judge it.
4. `harness corpus run ID`. If it is missed, say why under `missed`: write the case from its source, and leave it so.

Another checker is a function of a `harness.tools.corpus.checker.Form`. It raises AssertionError where it finds a
mistake, and `NotInScope` where it has nothing to say.

## Cases
"""


def page(cases: Sequence[Case], results: Mapping[str, Any]) -> str:
    """The text of docs/corpus.md."""
    fates = _fates(results)
    judged = [one for case in results["cases"].values() for form in case["judged"].values() for one in form]
    head = _HEAD.format(
        circumstances=_circumstances(results),
        table=_rows(table(cases, fates)),
        missed=_list(_open(cases, fates["harness"])),
        bundles=len(judged),
        costs=", ".join(COSTS),
    )
    parts = [head]
    for kind, text in KINDS.items():
        parts += [
            f"\n### {text[:1].upper()}{text[1:]}\n",
            _rows(_cases([one for one in cases if one.kind == kind], fates)),
        ]
    return "\n".join(parts) + "\n"


def _fates(results: Mapping[str, Any]) -> dict[str, dict[str, Fate]]:
    names = list(next(iter(results["cases"].values()))["fates"])
    return {name: {case: Fate(one["fates"][name]) for case, one in results["cases"].items()} for name in names}


def _circumstances(results: Mapping[str, Any]) -> str:
    is_current = results["corpus"] == corpus_digest(_ROOT)
    changed = "" if is_current else " **Files of the corpus have changed since, and were not measured again.**"
    return (
        f"{results['started'][:10]}, version {results['version']}, {results['profile']} profile on a CPU, "
        f"seed {results['seed']}, {round(results['seconds'] / 60)} minutes.{changed}"
    )


def _open(cases: Sequence[Case], fates: Mapping[str, Fate]) -> Iterator[str]:
    for case in cases:
        if fates[case.id] is not Fate.CAUGHT:
            yield f"`{case.id}`, {fates[case.id]}: {_plain(case.missed or case.out_of_scope)}"


def _cases(cases: Iterable[Case], fates: Mapping[str, Mapping[str, Fate]]) -> Iterator[Sequence[str]]:
    yield ["case", "year", "cost", "believed", "true", "noticed", "claims", *fates]
    for case in cases:
        what = f"[{_plain(case.title)}]({case.source})"
        noticed = f"{_plain(case.noticed)}; {_plain(case.late)}"
        claims = ", ".join(f"`{one}`" for one in case.claims) or "none"
        told = [str(of[case.id]) for of in fates.values()]
        yield [what, str(case.year), case.cost, _plain(case.believed), _plain(case.truth), noticed, claims, *told]


def _rows(rows: Iterable[Sequence[str]]) -> str:
    head, *others = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *others])


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {one}" for one in items)


def _plain(text: str) -> str:
    """A text in which nothing is markup but code."""
    return html.escape(text, quote=False).replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")


if __name__ == "__main__":
    PAGE.write_text(page(cases_of(_ROOT), json.loads(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")
