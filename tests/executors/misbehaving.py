"""A falsifier with subjects that misbehave in every way a trial must survive; written into a project of its own."""

CONTRACT = {
    "id": "F-TOY-SORT-001",
    "issue": "TOY-1",
    "spec": "SPEC-TOY",
    "title": "Sorting sorts",
    "claim": "The list comes back in order.",
    "sources": [{"uri": "urn:toy"}],
    "falsifier": "toy.sorting:falsify",
    "subject": "toy.sorting:Sorter",
    "profiles": {
        "reduced": {"requires": {"device": "any"}, "parameters": {"items": 3, "how": "well"}, "limits": {"seconds": 20}}
    },
    "observation": {
        "type": "object",
        "properties": {
            "inversions": {"type": "integer", "minimum": 0, "maximum": 0, "x-source": "the definition of sorted"}
        },
    },
    "mutants": [
        {
            "id": "identity",
            "subject": "toy.sorting:Sorter",
            "parameters": {"how": "not at all"},
            "violates": ["inversions.maximum"],
            "defect": "the list comes back as it was",
        }
    ],
}

MODULE = """
import ctypes
import os
import signal
import subprocess
import sys
import time

from harness import NotMeasured


class Sorter:
    def __init__(self, setting):
        self.how = setting.parameters["how"]
        self.workspace = setting.workspace
        if self.how == "cannot be built":
            raise ValueError("no")

    def sort(self, items):
        match self.how:
            case "well":
                return sorted(items)
            case "not at all":
                return items
            case "slowly":
                time.sleep(1.0)
                return sorted(items)
            case "raises":
                raise ValueError("cannot sort")
            case "exits":
                os._exit(0)
            case "sys.exit":
                sys.exit(0)
            case "segfaults":
                ctypes.string_at(0)
            case "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "runs out of memory":
                return [bytearray(1 << 40)]
            case "fills the disk":
                try:
                    raise OSError(28, "No space left on device")
                except OSError as error:
                    raise RuntimeError("cannot save") from error
            case "hangs":
                time.sleep(1000)
            case "hangs in a signal-proof way":
                signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
                while True:
                    time.sleep(1)
            case "leaves a child":
                child = subprocess.Popen(["sleep", "1000"])
                print("child", child.pid, flush=True)
                return sorted(items)
            case "leaves a daemon":
                subprocess.run(["setsid", "--fork", "sleep", "1000"], check=True)
                return sorted(items)
            case "floods":
                chunk = b"x" * 999 + b"\\n"
                for _ in range(1000):
                    sys.stdout.buffer.write(chunk * 1000)
                return sorted(items)
            case "leaks":
                print("token=" + os.environ.get("ANOTHER", "") + "hf_" + "a" * 30, flush=True)
                return sorted(items)
            case "prints its environment":
                print(sorted(os.environ), flush=True)
                return sorted(items)
            case "leaves a file":
                (self.workspace / "scratch").write_text("gone afterwards")
                return sorted(items)


def falsify(trial):
    if trial.parameters["how"] == "falsifier raises":
        raise RuntimeError("the falsifier is broken")
    if trial.parameters["how"] == "falsifier gives up":
        raise NotMeasured("the reference is not available")
    if trial.parameters["how"] == "falsifier exits":
        os._exit(3)
    if trial.parameters["how"] == "undeclared":
        trial.measure(invertions=0)
    trial.step(1, loss=2.0)
    trial.measure(inversions=0)
    trial.resolve(device="cpu")
    items = [3, 1, 2][: trial.parameters["items"]]
    with trial.subject_fault():
        result = trial.subject.sort(items)
    trial.measure(inversions=sum(a > b for a, b in zip(result, result[1:], strict=False)))
    (trial.artifacts / "result.txt").write_text(str(result))
"""
