"""A project with a subject whose behaviour a parameter chooses, behind a Protocol that can be isolated."""

CONTRACT = {
    "id": "F-TOY-APART-001",
    "issue": "TOY-2",
    "spec": "SPEC-TOY",
    "title": "Halving halves",
    "claim": "Every number is halved.",
    "sources": [{"uri": "urn:toy"}],
    "falsifier": "apart.halving:falsify",
    "subject": "apart.subjects:Halver",
    "profiles": {"reduced": {"requires": {"device": "any"}, "parameters": {"how": "well"}, "limits": {"seconds": 20}}},
    "observation": {
        "type": "object",
        "properties": {
            "error": {"type": "number", "maximum": 0.0, "x-source": "the definition of a half"},
            "refused": {"type": "boolean"},
            "process": {"type": "integer"},
            "imported": {"type": "boolean"},
            "followed": {"const": True},
        },
    },
    "mutants": [
        {
            "id": "identity",
            "subject": "apart.subjects:Halver",
            "parameters": {"how": "not at all"},
            "violates": ["error.maximum"],
            "defect": "nothing is halved",
        }
    ],
}

PROTOCOL = '''
from dataclasses import dataclass
from typing import Protocol


class Refused(ValueError):
    """The number cannot be halved."""


@dataclass(frozen=True)
class Numbers:
    values: tuple[float, ...]


class Halving(Protocol):
    def half(self, number: float) -> float: ...

    def halves(self, numbers: Numbers) -> Numbers: ...

    def process(self) -> int: ...

    def surroundings(self) -> tuple[str, str | None]: ...
'''

FALSIFIER = """
import os
import sys

from apart.protocol import Halving, Numbers, Refused
from harness import Trial


def falsify(trial: Trial[Halving]) -> None:
    trial.resolve(device="cpu")
    with trial.subject_fault():
        half = trial.subject.half(3.0)
        numbers = (1.0, 2.0, 5.0)
        halves = trial.subject.halves(Numbers(numbers)).values
    with trial.subject_fault():
        try:
            trial.subject.half(float("inf"))
            refused = False
        except Refused:
            refused = True
    errors = [abs(2 * one - other) for one, other in zip(halves, numbers, strict=True)]
    trial.measure(error=abs(half - 1.5) + max(errors), refused=refused)
    with trial.subject_fault():
        process = trial.subject.process()
    trial.measure(process=process, imported=sys.modules.get("apart.subjects") is not None)
    before = os.getcwd(), None
    os.chdir(trial.workspace)
    os.environ["TOY"] = "there"
    with trial.subject_fault():
        there = trial.subject.surroundings()
    os.chdir(before[0])
    del os.environ["TOY"]
    with trial.subject_fault():
        back = trial.subject.surroundings()
    trial.measure(followed=there == (str(trial.workspace.resolve()), "there") and back == before)
    if trial.parameters["how"] == "is asked for more":
        with trial.subject_fault():
            trial.subject.quarter(3.0)
    if trial.parameters["how"] == "is built again":
        with trial.subject_fault():
            type(trial.subject)(trial.setting)
    if trial.parameters["how"] == "gets what cannot be carried":
        with trial.subject_fault():
            trial.subject.half(object())
"""

SUBJECTS = """
import ctypes
import builtins
import gc
import os
import signal
import subprocess
import sys
import time

from apart.protocol import Numbers, Refused


class Zero(float):
    def __sub__(self, other):
        return 0.0

    __rsub__ = __sub__


class Stranger(Exception):
    pass


class Halver:
    def __init__(self, setting):
        self.how = setting.parameters["how"]
        if self.how == "cannot be built":
            raise ValueError("no")
        self.workspace = setting.workspace
        if self.how == "builds a model and loads it":
            import safetensors.torch

    def process(self):
        return os.getpid()

    def surroundings(self):
        return os.getcwd(), os.environ.get("TOY")

    def halves(self, numbers):
        if self.how == "returns another type":
            return numbers.values
        return Numbers(tuple(one / 2 for one in numbers.values))

    def half(self, number):
        if number == float("inf"):
            raise Refused("an infinity has no half")
        match self.how:
            case "not at all":
                return number
            case "replaces the harness":
                from harness.authoring import trial
                trial.plain = lambda value: 0.0 if type(value) is float else value
                return number
            case "replaces a function of Python":
                builtins.abs = lambda value: 0.0
                return number
            case "searches the memory":
                from harness.authoring.trial import Trial
                for one in gc.get_objects():
                    if type(one) is Trial:
                        one.measure(error=0.0, refused=True, process=0, imported=False, followed=True)
                        one.measure = lambda **measurements: None
                        one._recorder.report = lambda message: None
                return number
            case "lies in its methods":
                return Zero(number)
            case "raises":
                raise Stranger("cannot halve")
            case "raises not measured":
                from harness import NotMeasured
                raise NotMeasured("no such library")
            case "finds the disk full":
                raise OSError(28, "No space left on device")
            case "exits":
                os._exit(0)
            case "segfaults":
                ctypes.string_at(0)
            case "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "leaves a child and exits":
                if os.fork() == 0:
                    time.sleep(1000)
                os._exit(3)
            case "returns from a fork":
                if os.fork() == 0:
                    return number
                time.sleep(0.2)
            case "hangs":
                time.sleep(1000)
            case "writes everywhere":
                for descriptor in range(3, 64):
                    try:
                        os.write(descriptor, b"\\\\n[1, 2, 3]\\\\n" * 10)
                    except OSError:
                        pass
            case "builds a model and loads it":
                import torch
                from safetensors.torch import load_file, save_file
                self.model = torch.nn.Linear(2, 2)
                save_file(self.model.state_dict(), self.workspace / "weights.safetensors")
                self.model.load_state_dict(load_file(self.workspace / "weights.safetensors"))
            case "prints":
                print("from the subject")
            case "imports late":
                from apart import late
        return number / 2
"""
