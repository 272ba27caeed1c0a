"""Falsifier-driven verification of claims about GPU training and kernels.

This is the authoring surface, all that a falsifier or a subject imports:

    from harness import NotMeasured, Setting, Trial

    def falsify(trial: Trial[Sorter]) -> None:
        with trial.subject_fault():
            result = trial.subject.sort([3, 1, 2])
        trial.measure(first=result[0], items=len(result))
        trial.resolve(device="cpu")

A script or a notebook runs claims and reads evidence:

    import harness

    harness.run("F-DISTILL-SMOKE-001", profile="reduced")
    harness.load("evidence").groupby(["id", "verdict"]).size()

Each name is imported on first use, so `import harness` is quick and needs none of the libraries behind it.
"""

TYPE_CHECKING = False  # type checkers take this name as true; importing it takes longer than all of this module
if TYPE_CHECKING:
    from harness.authoring.examine import for_external, not_observable
    from harness.authoring.faults import NotMeasured, NotObserved
    from harness.authoring.setting import Setting
    from harness.authoring.trial import Trial
    from harness.authoring.unobserved import Unobserved, first_observed, propagates, provided
    from harness.evidence.verified import verify
    from harness.running.in_process import run
    from harness.tools.frames import clauses, load, mutants, steps

__all__ = [
    "NotMeasured",
    "NotObserved",
    "Setting",
    "Trial",
    "Unobserved",
    "clauses",
    "first_observed",
    "for_external",
    "load",
    "mutants",
    "not_observable",
    "propagates",
    "provided",
    "run",
    "steps",
    "verify",
]

_MODULES = {
    "harness.authoring.examine": ("for_external", "not_observable"),
    "harness.authoring.faults": ("NotMeasured", "NotObserved"),
    "harness.authoring.unobserved": ("Unobserved", "first_observed", "propagates", "provided"),
    "harness.authoring.setting": ("Setting",),
    "harness.authoring.trial": ("Trial",),
    "harness.evidence.verified": ("verify",),
    "harness.tools.frames": ("clauses", "load", "mutants", "steps"),
    "harness.running.in_process": ("run",),
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    for module, names in _MODULES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(module), name)
            return value
    raise AttributeError(f"module 'harness' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
