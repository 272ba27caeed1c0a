"""The checks on the facts of a job: none refutes the healthy one, and each refutes the job with its defect."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.tools.trainer.trainer_file import load
from harness.tools.watch.checks import CHECKS, measured, state_of, unseen
from harness.tools.watch.contract import contract_of
from harness.tools.watch.facts import Fact
from harness.tools.watch.given import Given, given_of
from harness.tools.watch.job_state import JobState
from harness.tools.watch.planted import DEFECTS, GIVEN, healthy, planted
from tests.tools.watch.jobs import project_of


def job(steps: Sequence[dict[str, Any]], given: Given, **keys: Any) -> JobState:
    """The state of a job that prints these values, one step a second."""
    facts: list[Fact] = [{"fact": "job", "at": 0.0, "folder": "run", **keys}]
    for number, values in enumerate(steps, 1):
        texts = {name: str(value) for name, value in {"step": number, **values}.items()}
        facts.append(
            {"fact": "output", "at": float(number), "file": "log", "offset": number, "events": [["step", texts, ""]]}
        )
    return state_of([*facts, {"fact": "ended", "at": len(steps) + 1.0, "status": 0, "how": "ended"}], given)


def refuted(found: JobState) -> set[str]:
    """The checks that refute."""
    return {refutation.check for refutation in found.refutations}


def test_the_healthy_job_is_not_refuted() -> None:
    """Every check that its facts can decide holds."""
    found = state_of(healthy(), GIVEN)
    assert found.refutations == []
    assert unseen(found).keys() == {"gpu_unused"}
    assert set(measured(found)) == {"steps_seen", *(check.name for check in CHECKS)} - {"gpu_unused"}


@pytest.mark.parametrize("defect", DEFECTS)
def test_each_defect_is_refuted(defect: str) -> None:
    """The check that the defect names refutes it, as soon as the facts show it."""
    facts = planted(defect)
    found = state_of(facts, GIVEN)
    mine = [refutation for refutation in found.refutations if refutation.check == DEFECTS[defect].violates]
    assert mine
    until = [fact for fact in facts if fact["at"] <= mine[0].at]
    assert DEFECTS[defect].violates in refuted(state_of(until, GIVEN))


SHOWN = {"name": "a job", "issue": "WATCH", "folder": "run", "is_local": True, "is_ours": True, "recorder": "records",
         "roles": ["initial", "teacher"], "orders": {"without": ["stalled"]}}  # fmt: skip


def test_a_contract_speaks_of_what_the_job_can_show(tmp_path: Path) -> None:
    """It declares what the checks measure, with a mutant for each. A loop names no device and no save that failed."""
    checks = {check.name for check in CHECKS}
    assert {defect.violates for defect in DEFECTS.values()} == checks - {"gpu_unused"}
    contract = contract_of(SHOWN, GIVEN, None, tmp_path / "facts", tmp_path)
    assert contract.id == "F-WATCH-A-JOB-001"
    shown = checks - {"gpu_unused", "device_other", "saves_failed", "stalled"}
    assert contract.measurements == {"steps_seen", *shown}
    assert {mutant.violates[0].removesuffix(".maxItems") for mutant in contract.mutants} == shown
    trainer = load(project_of(tmp_path / "project") / "toy.toml")
    unknown = {**SHOWN, "folder": "", "roles": [], "recorder": "", "is_local": False, "is_ours": False}
    assert contract_of(unknown, Given(device="cpu"), trainer, tmp_path / "facts", tmp_path).measurements == {
        "steps_seen", "losses_not_finite", "losses_constant", "losses_rise", "steps_untrue", "throughput_collapsed",
        "device_other",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("schedule", "rate", "is_refuted"),
    [
        ("constant", lambda step: 0.1, False),
        ("constant", lambda step: 0.1 if step < 50 else 0.2, True),
        ("linear", lambda step: 0.1 * (1 - step / 100), False),
        ("linear", lambda step: 0.1 * (1 - step / 200), True),
        ("", lambda step: 0.1 * (1 - step / 200), False),
        ("", lambda step: 0.0, True),
        ("", lambda step: 1.0, True),
    ],
)
def test_rates(schedule: str, rate: Any, is_refuted: bool) -> None:
    """A rate that is not of the schedule is refuted; without a schedule, only 0 and a rate that is too high are."""
    steps = [{"loss": 5 - step / 50, "learning_rate": rate(step)} for step in range(1, 101)]
    found = job(steps, Given(steps=100, learning_rate=0.1, schedule=schedule))
    assert ("rates_off" in refuted(found)) is is_refuted


def test_warm_up_is_part_of_the_schedule() -> None:
    """Rates rise to the configured one."""
    steps = [{"learning_rate": 0.1 * min(step / 10, 1)} for step in range(1, 31)]
    assert refuted(job(steps, Given(steps=30, learning_rate=0.1, warmup_steps=10, schedule="constant"))) == set()


@pytest.mark.parametrize(
    ("batches", "epochs", "is_refuted"),
    [
        ([1, 2, 3, 1, 2, 3], [1, 1, 1, 2, 2, 2], False),
        ([1, 2, 3, 1, 2, 3], [1, 1, 1, 1, 1, 1], True),
        ([1, 2, 3, 1, 2, 3], [None] * 6, False),
        ([1, 2, 2, 2, 3, 4], [None] * 6, True),
        ([1, 2, 1, 3, 1, 4], [1, 1, 1, 1, 1, 1], False),
    ],
)
def test_batches(batches: list[int], epochs: list[Any], is_refuted: bool) -> None:
    """An epoch repeats no two batches in a row. Without epochs, only a batch that stays is refuted."""
    steps = [
        {"batch": batch, **({} if epoch is None else {"epoch": epoch})}
        for batch, epoch in zip(batches, epochs, strict=True)
    ]
    assert ("batches_repeated" in refuted(job(steps, Given()))) is is_refuted


def test_a_run_that_resumes_at_a_checkpoint_may_go_back() -> None:
    """Step 21 may come after step 30 if there is a checkpoint of step 20; without one it is untrue."""
    facts = [fact for fact in healthy() if fact["at"] <= 30 and fact["fact"] in ("job", "output", "checkpoint")]
    again = [{**fact, "at": fact["at"] + 20} for fact in facts if fact["fact"] == "output" and fact["at"] >= 21]
    assert refuted(state_of([*facts, *again], GIVEN)) == set()
    lost = [fact for fact in facts if fact["fact"] != "checkpoint"]
    assert "steps_untrue" in refuted(state_of([*lost, *again], replace(GIVEN, checkpoint_every=None)))


def test_fewer_steps_than_asked() -> None:
    """A run that ends well before its last step is untrue; one that something ended is not."""
    facts = [fact for fact in healthy() if fact["at"] <= 60]
    for status, expected in ((0, {"steps_untrue"}), (143, set())):
        end = {"fact": "ended", "at": 61.0, "status": status, "how": "ended"}
        assert refuted(state_of([*facts, end], GIVEN)) == expected


def test_a_frozen_tensor_need_not_move() -> None:
    """The trainer's file names what the run does not train."""
    facts = [{**fact, "frozen": "^layer"} if fact["fact"] == "job" else fact for fact in planted("idle-optimizer")]
    names = [
        refutation.why for refutation in state_of(facts, GIVEN).refutations if refutation.check == "checkpoints_unmoved"
    ]
    assert names
    assert "layer" not in names[0]


@pytest.mark.parametrize(
    ("after", "is_refuted"),
    [
        ([{"fact": "usage", "cpu_percent": 1.0}] * 40, True),
        ([{"fact": "usage", "cpu_percent": 95.0}] * 40, False),
        ([{"fact": "usage", "cpu_percent": 95.0}] * 400, True),
        ([{"fact": "usage", "cpu_percent": 1.0, "gpu_utilisation_percent": 80}] * 40, False),
        ([{"fact": "output", "file": "output.log", "offset": 9, "events": []}] * 40, False),
    ],
)
def test_a_job_that_works_does_not_stand_still(after: list[Fact], is_refuted: bool) -> None:
    """An evaluation may take long. What stands still prints nothing and does nothing, or is busy for far too long."""
    facts = [fact for fact in healthy() if fact["at"] <= 60]
    late = [{**fact, "at": 70.0 + 10 * number} for number, fact in enumerate(after)]
    assert ("stalled" in refuted(state_of([*facts, *late], GIVEN))) is is_refuted


def test_a_first_loss_of_zero() -> None:
    """Of a student it refutes at once if its gradient is 0, too: rounding may move the weights afterwards."""
    steps = [{"loss": 1e-9, "grad_norm": 1e-8}, *({"loss": 1e-4, "grad_norm": 1e-3} for _ in range(30))]
    found = job(steps, Given(), roles=["teacher"])
    assert [(refutation.check, refutation.step) for refutation in found.refutations][:1] == [("losses_constant", 1)]
    for norm in (0.3, math.nan):
        steps[0] = {"loss": 0.0, "grad_norm": norm}
        found = job(steps[:5], Given(), roles=["teacher"])
        assert "losses_constant" not in refuted(found)


def test_equal_rewards_are_no_constant_loss() -> None:
    """GRPO has neither loss nor gradient in a step in which all rewards are equal, and no loss before it moves on."""
    norms = [0.0, 0.0, 0.3, 0.2, 0.0, 0.4, 0.0, 0.0, 0.0]
    assert refuted(job([{"loss": 0.0, "grad_norm": norm} for norm in norms], Given())) == set()
    found = job([{"loss": 0.0, "grad_norm": 0.0}] * 5, Given())
    assert [refutation.step for refutation in found.refutations if refutation.check == "losses_constant"] == [5]


def test_an_evaluation_is_no_collapse() -> None:
    """One long pause in a window does not count."""
    late = [{**fact, "at": fact["at"] + (200.0 if fact["at"] > 60 else 0.0)} for fact in healthy()]
    assert refuted(state_of(late, GIVEN)) == set()


def test_pages_of_files_do_not_creep() -> None:
    """The kernel takes the memory of a mapped data set back."""
    facts = [
        {**fact, "rss_bytes": fact["anonymous_bytes"] + fact["at"] * 2**27} if fact["fact"] == "usage" else fact
        for fact in healthy()
    ]
    assert refuted(state_of(facts, replace(GIVEN, predicted_bytes=None))) == set()


def test_a_job_may_take_long_to_finish() -> None:
    """After its last step it saves and uploads, for as long as it takes."""
    facts = healthy()[:-1]
    late: list[Fact] = [{"fact": "usage", "at": 130.0 + 100 * number} for number in range(20)]
    assert refuted(state_of([*facts, *late], GIVEN)) == set()


@pytest.mark.parametrize(
    ("samples", "launches", "is_over", "seen"),
    [
        ([False, None, None], 0, True, None),  # the ids of another PID namespace
        ([False, None], 4, True, True),
        ([False, False], 0, True, False),
        ([False, False], 0, False, None),  # its first kernel may still come
        ([False, True, False], 0, False, True),
        ([], 0, True, None),
    ],
)
def test_whether_a_job_uses_the_gpu(
    samples: list[bool | None], launches: int, is_over: bool, seen: bool | None
) -> None:
    """A sample from before the first use does not make the sealed verdict of a healthy job a FAIL."""
    facts: list[Fact] = [{"fact": "job", "at": 0.0, "recorder": "records", "is_ours": True}]
    facts += [{"fact": "usage", "at": float(at), "gpu_seen": sample} for at, sample in enumerate(samples)]
    facts += [{"fact": "driver", "at": 9.0, "file": "7.jsonl", "offset": 9, "ready": 1, "launches": launches}]
    facts += [{"fact": "ended", "at": 9.5, "status": 0, "how": "ended with status 0"}] if is_over else []
    assert state_of(facts, Given(device="cuda")).seen_on_gpu is seen


def test_a_gpu_that_is_not_used() -> None:
    """The driver lists no process of the job, or the GPU does nothing."""
    given = replace(GIVEN, device="cuda")
    seen = {False: {"gpu_unused"}, None: set(), True: set()}
    for name, expected in seen.items():
        facts = [
            {**fact, "gpu_seen": name, "cpu_percent": 90.0} if fact["fact"] == "usage" else fact for fact in healthy()
        ]
        facts = [fact for fact in facts if fact.get("file") != "output.log" or fact["events"][0][0] == "step"]
        assert refuted(state_of(facts, given)) == set()  # kernels are launched
        silent = [fact for fact in facts if fact["fact"] != "driver"]
        assert refuted(state_of(silent, given)) == expected
    idle = [
        {**fact, "gpu_seen": True, "gpu_utilisation_percent": 0} if fact["fact"] == "usage" else fact for fact in facts
    ]
    assert refuted(state_of(idle, replace(given, idle_seconds=50.0))) == set()  # kernels are launched
    quiet = [fact for fact in idle if fact["fact"] != "driver" or fact["at"] < 20]
    assert refuted(state_of(quiet, replace(given, idle_seconds=50.0))) == {"gpu_unused"}


@pytest.mark.parametrize(
    "values",
    [{"steps": "many"}, {"steps": 1.5}, {"rise": -1}, {"device": "tpu"}, {"schedule": "spiral"}, {"rise": True}],
)
def test_wrong_parameters_are_refused(values: dict[str, Any]) -> None:
    """Before a job starts."""
    with pytest.raises(ValueError, match=next(iter(values))):
        given_of(values)


def test_parameters_survive_as_texts() -> None:
    """A contract keeps them as `-P` takes them."""
    assert Given.of_texts(GIVEN.texts()) == GIVEN
    assert given_of({"checkpoint_every": 0, "steps": None, "teacher": "x"}) == Given()


@pytest.mark.parametrize(("printed", "is_refuted"), [([12_345_678], False), ([1], False), ([21, 22], True)])
def test_a_garbled_line_is_no_step(printed: list[int], is_refuted: bool) -> None:
    """Two processes that write at once can join or cut numbers. A step that is far off counts if one follows it."""
    steps = [*range(1, 51), *printed, *range(51, 101)]
    found = job([{"step": step, "loss": 5 - step / 50} for step in steps], Given(steps=100, checkpoint_every=1000))
    assert ("steps_untrue" in refuted(found)) is is_refuted
    assert found.step == 100


@pytest.mark.parametrize(
    ("losses", "norm", "is_refuted"),
    [
        ([0.0] * 40, 0.0, True),
        ([0.0] * 40, 0.3, False),
        ([2.0] * 40, 0.3, True),
        ([2.0, 1.0, 0.1, *[0.0] * 40], 0.0, False),
        ([2.0, 1.5, *[1.0] * 40], 0.3, True),
    ],
)
def test_a_loss_that_is_learned_is_not_constant(losses: list[float], norm: float, is_refuted: bool) -> None:
    """A loss may fall to 0; one that begins there needs a gradient."""
    found = job([{"loss": loss, "grad_norm": norm} for loss in losses], Given())
    assert ("losses_constant" in refuted(found)) is is_refuted
