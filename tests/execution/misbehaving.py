"""A falsifier, and subjects that misbehave in every way that a trial must survive. It is copied into a project."""

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
        "reduced": {"requires": {"device": "any"}, "parameters": {"items": 3, "how": "well"}, "limits": {"seconds": 90}}
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
import asyncio
import ctypes
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

from harness import NotMeasured


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Zero(int):
    def __int__(self):
        return 0

    __index__ = __abs__ = __int__


def shout(messages):
    for descriptor in range(3, 64):
        for message in messages:
            try:
                os.write(descriptor, b"\\n" + json.dumps(message).encode() + b"\\n")
            except OSError:
                pass


class Sorter:
    def __init__(self, setting):
        self.how = setting.parameters["how"]
        self.workspace = setting.workspace
        if self.how == "cannot be built":
            raise ValueError("no")

    def train(self, report):
        step = 0
        while True:
            if "hangs" in self.how and step == 3:
                time.sleep(600)
            report(step)
            step += 1
            time.sleep(0.05)

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
                pathlib.Path("hanging").touch()
                time.sleep(600)
            case "hangs in a signal-proof way":
                signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
                for _ in range(60):
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
                print(sorted(os.environ), "CUDA_VISIBLE_DEVICES=" + os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
                print(os.environ["TORCHINDUCTOR_CACHE_DIR"], os.environ["TRITON_CACHE_DIR"], flush=True)
                return sorted(items)
            case "is cancelled":
                raise asyncio.CancelledError
            case "raises the unspeakable":
                raise Unspeakable
            case "raises a novel":
                raise ValueError("x" * (20 << 20) + " hf_" + "a" * 30)
            case "finds the GPU busy":
                raise RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable")
            case "stops itself":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "ends its parent":
                os.kill(os.getppid(), signal.SIGKILL)
                time.sleep(1000)
            case code if code.startswith("runs:"):
                exec(code.removeprefix("runs:"), globals())
                return sorted(items)
            case "closes its output":
                sys.stdout.close()
                os.close(1)
                os.close(2)
                return sorted(items)
            case "closes what it does not own":
                os.closerange(3, 256)
                return sorted(items)
            case "writes where it should not":
                for descriptor in range(3, 64):
                    try:
                        os.write(descriptor, b"[1, 2, 3]\\n{\\n")
                    except OSError:
                        pass
                return sorted(items)
            case "forges its result":
                claims = [["Measured", {"values": {"inversions": 0}}], ["Resolved", {"values": {"device": "cpu"}}]]
                end = {"kind": "completed", "reason": "", "traceback": None, "allocator_peak_bytes": None}
                shout([*claims, ["Ended", end]])
                return items
            case "names another process":
                shout([["Started", {"pid": os.getppid()}]])
                return sorted(items)
            case "says that it was killed":
                shout([["Exited", {"code": None, "signal": "SIGKILL"}]])
                return items
            case "counts for itself":
                return Zero(9)
            case "returns from a fork":
                if os.fork() == 0:
                    return items
                time.sleep(0.3)
                return sorted(items)
            case "floods twice":
                chunk = b"x" * 999 + b"\\n"
                streams = [sys.stdout.buffer, sys.stderr.buffer]
                threads = [
                    threading.Thread(target=lambda out: [out.write(chunk * 1000) for _ in range(50)], args=[stream])
                    for stream in streams
                ]
                [thread.start() for thread in threads]
                [thread.join() for thread in threads]
                return sorted(items)
            case "prints no UTF-8":
                sys.stdout.buffer.write(b"\\xff\\xfe\\x00\\xed\\xa0\\x80")
                return sorted(items)
            case "hops":
                if os.fork() == 0:
                    for _ in range(2000):
                        if os.fork():
                            os._exit(0)
                    time.sleep(1000)
                return sorted(items)
            case "imports late":
                from toy import late
                return sorted(items) if late.LATE else items
            case "leaves a file":
                (self.workspace / "scratch").write_text("gone afterwards")
                return sorted(items)
            case "leaves a maze":
                os.chdir(self.workspace)
                os.mkfifo("pipe")
                socket.socket(socket.AF_UNIX).bind("socket")
                os.symlink("/", "link")
                os.mkdir("closed")
                (self.workspace / "closed" / "file").touch()
                os.chmod("closed", 0)
                for _ in range(1_000):
                    os.mkdir("d")
                    os.chdir("d")
                return sorted(items)
            case "puts links in place of its folders":
                folder = self.workspace.parent
                for place in (folder / "claim.json", folder / "artifacts", self.workspace):
                    place.rename(place.with_suffix(".away"))
                    place.symlink_to(folder.parent.parent / "elsewhere", target_is_directory=True)
                return sorted(items)
            case _:
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
    if trial.parameters["how"] == "too much":
        with trial.subject_fault():
            trial.measure(inversions="x" * (17 << 20))
    if trial.parameters["how"] == "undeclared in a callback":
        with trial.subject_fault():
            trial.measure(invertions=0)
    if trial.parameters["how"] == "text as a step":
        trial.step(1, loss="hf_" + "a" * 30)
    if trial.parameters["how"] == "deep":
        nest = 0
        for _ in range(700):
            nest = [nest]
        trial.measure(inversions=nest)
    if trial.parameters["how"] == "faults inside faults":
        with trial.subject_fault():
            with trial.subject_fault():
                pass
            os._exit(0)
    if trial.parameters["how"] == "swallows a callback's fault":
        with trial.subject_fault():
            try:
                with trial.falsifier_fault():
                    raise KeyError("falsifier")
            except Exception:
                pass
    if trial.parameters["how"] == "exits in a callback":
        with trial.subject_fault(), trial.falsifier_fault():
            with trial.subject_fault():
                pass
            os._exit(0)
    if trial.parameters["how"] == "swallows":
        try:
            with trial.subject_fault():
                raise ValueError("cannot sort")
        except Exception:
            pass
    if trial.parameters["how"] == "threads":
        def report(number):
            for step in range(25):
                trial.step(1000 * number + step, **{"loss" * 200 + str(column): 0.5 for column in range(100)})
        threads = [threading.Thread(target=report, args=[number]) for number in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    if trial.parameters["how"] == "speaks after its end":
        class Output:
            def flush(self):
                trial.measure(inversions=7)
                raise RuntimeError("not flushed")
        sys.stdout = Output()
    if trial.parameters["how"] == "alarms":
        def ring(number, frame):
            trial.step(0, loss=1.0)
        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        for step in range(2000):
            trial.step(step, loss=0.5)
        signal.setitimer(signal.ITIMER_REAL, 0)
    if trial.parameters["how"] == "fast":
        began = time.process_time()
        for step in range(50_000):
            trial.step(step, loss=0.5, tokens_per_second=1000.0)
        print((time.process_time() - began) / 50_000)
    if trial.parameters["how"] == "imports late and dies":
        import toy.late
        trial.step(1, loss=2.0)
        ctypes.string_at(0)
    if trial.parameters["how"].startswith("reads tables"):
        here = pathlib.Path(__file__).parent
        (here / "kernels" / "add.cu").read_text()
        os.close(os.open(here / "table.bin", os.O_RDONLY))
        (here.parent / "data" / "corpus.txt").read_text()
        (here / "made.txt").write_text("while it ran")
        (here / "made.txt").read_text()
        (here / "beside.tmp").write_text("while it ran")
        (here / "beside.tmp").rename(here / "renamed.txt")
        (here / "renamed.txt").read_text()
        (here / "checkpoint.bin").read_bytes()
        if trial.parameters["how"].endswith("and dies"):
            trial.step(1, loss=2.0)
            ctypes.string_at(0)
    if trial.parameters["how"] == "tells its own time":
        trial.step(0, seconds=-7.0)
    if trial.parameters["how"] == "leaks in a name":
        trial.step(0, **{"hf_" + "a" * 30: 1.0})
    if trial.parameters["how"].startswith("trains"):
        trial.measure(inversions=9)
        with trial.subject_fault():
            trial.subject.train(trial.step)
    trial.step(1, loss=2.0)
    if trial.parameters["how"] not in ("not at all", "counts for itself"):
        trial.measure(inversions=0)
    trial.resolve(device="cpu")
    items = [3, 1, 2][: trial.parameters["items"]]
    with trial.subject_fault():
        result = trial.subject.sort(items)
    if trial.parameters["how"] == "counts for itself":
        trial.measure(inversions=result)
        return
    trial.measure(inversions=sum(a > b for a, b in zip(result, result[1:], strict=False)))
    (trial.artifacts / "result.txt").write_text(str(result))
"""
