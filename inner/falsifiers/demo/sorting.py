"""A falsifier, its subject and a mutant, small enough for a test."""

from harness import Setting, Trial


class Sorter:
    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def sort(self, items: list[float]) -> list[float]:
        return sorted(items)


class Forgetful(Sorter):
    def sort(self, items: list[float]) -> list[float]:
        return sorted(items)[1:]


def falsify(trial: Trial[Sorter]) -> None:
    items = [3.0, 1.0, 2.0]
    with trial.subject_fault():
        result = trial.subject.sort(items)
    trial.measure(given=len(items), returned=len(result), smallest=min(result), largest=max(result), values=result)
    trial.resolve(device="cpu", steps=3)
