"""A loop that tells a sentinel of its steps, and transformers' Trainer with the callback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.base.vocabulary import Outcome
from harness.contract.project import Project
from harness.tools.watch.facts import FactFile
from harness.tools.watch.sentinel import Refuted, Sentinel
from tests.tools.watch.jobs import bundles

torch = pytest.importorskip("torch")


def sentinel(project: Project, folder: Path, **options: Any) -> Sentinel:
    """A sentinel of a loop of 50 steps."""
    return Sentinel("loop", steps=50, project=project, state=folder / "state", evidence=folder / "evidence", **options)


def failed(evidence: Path) -> list[str]:
    """The clauses that fail in the only bundle."""
    [bundle] = bundles(evidence)
    return [clause.id for clause in bundle.record.clauses if clause.outcome is Outcome.FAIL]


def loop(watch: Sentinel, *, rate: float, nan_at: int = 0) -> None:
    """Fit a layer to the identity."""
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for step in range(1, 51):
        batch = torch.randn(16, 8)
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(step, loss=float("nan") if step == nan_at else loss, batch=batch, weights=model)


def test_a_healthy_loop(project: Project, tmp_path: Path) -> None:
    """It is not refuted."""
    with sentinel(project, tmp_path, weights_every=10) as watch:
        loop(watch, rate=0.1)
    assert watch.refuted is None
    assert failed(tmp_path / "evidence") == []


def test_weights_that_stand(project: Project, tmp_path: Path) -> None:
    """The second look at the weights finds them as they were, and the loop is stopped."""
    with pytest.raises(Refuted) as raised, sentinel(project, tmp_path, weights_every=10, on_refute="stop") as watch:
        loop(watch, rate=0.0)
    assert (raised.value.refutation.check, raised.value.refutation.step) == ("weights_unmoved", 20)
    assert failed(tmp_path / "evidence") == ["weights_unmoved.maxItems"]


def test_nan_is_logged(project: Project, tmp_path: Path) -> None:
    """By default the loop goes on."""
    with sentinel(project, tmp_path) as watch:
        loop(watch, rate=0.1, nan_at=30)
    assert watch.job.step == 50
    assert failed(tmp_path / "evidence") == ["losses_not_finite.maxItems"]


def test_a_broken_sentinel_warns(project: Project, tmp_path: Path) -> None:
    """What it cannot take breaks it, once, and the loop goes on."""
    watch = sentinel(project, tmp_path, on_refute="stop")
    watch.step(1, weights="no module", loss=1.0)
    with pytest.warns(UserWarning, match="THE SENTINEL FAILED"):
        watch.step(100, weights="no module", loss=1.0)
    watch.step(101, loss=float("nan"))
    watch.end()


@pytest.mark.parametrize("given", [{"stepz": 5}, {"steps": -1}, {"on_refute": "kill"}])
def test_wrong_options(project: Project, tmp_path: Path, given: dict[str, Any]) -> None:
    """They are refused before the loop."""
    with pytest.raises(ValueError, match=r"stepz|negative|log or stop"):
        Sentinel("loop", project=project, state=tmp_path / "state", **given)


@pytest.mark.parametrize("rate", [0.01, 0.0])
def test_transformers_trainer(project: Project, tmp_path: Path, rate: float) -> None:
    """The callback knows what was asked for, reads the checkpoints, and stops a run whose rate is 0."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from harness.tools.watch.transformers_callback import HarnessCallback

    class Model(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(8, 8)

        def forward(self, x: Any, labels: Any = None) -> Any:
            return {"loss": (self.layer(x) - labels).square().mean()}

    rows = [{"x": row, "labels": row} for row in torch.randn(640, 8)]
    arguments = transformers.TrainingArguments(
        tmp_path / "out", max_steps=30, learning_rate=rate, lr_scheduler_type="constant", logging_steps=1,
        save_steps=10, report_to="none", disable_tqdm=True, use_cpu=True, per_device_train_batch_size=16,
    )  # fmt: skip
    callback = HarnessCallback(
        project=project, state=tmp_path / "state", evidence=tmp_path / "evidence", on_refute="stop", weights_every=5
    )
    trainer = transformers.Trainer(Model(), arguments, train_dataset=rows, callbacks=[callback])
    trainer.train()
    assert callback.sentinel is not None
    found = callback.sentinel.job
    assert (found.given.steps, found.given.schedule) == (30, "constant")
    if rate:
        assert found.refutations == []
        assert found.checkpoints.keys() == {10, 20, 30}
        assert trainer.state.global_step == 30
    else:
        assert {"rates_off", "weights_unmoved"} & {refutation.check for refutation in found.refutations}
        assert trainer.state.global_step < 30


@pytest.mark.parametrize("rate", [0.1, 0.0])
def test_lightning_trainer(project: Project, tmp_path: Path, rate: float) -> None:
    """The callback tells of each optimizer step, of two batches each, and stops a run whose weights stand."""
    lightning = pytest.importorskip("lightning.pytorch", reason="needs Lightning: pip install lightning")
    from harness.tools.watch.lightning_callback import HarnessCallback

    class Model(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)

        def training_step(self, batch: Any, index: int) -> Any:
            return (self.layer(batch) - batch).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=rate)

    callback = HarnessCallback(
        project=project, state=tmp_path / "state", evidence=tmp_path / "evidence", on_refute="stop", weights_every=5
    )
    trainer = lightning.Trainer(
        max_steps=30, accumulate_grad_batches=2, accelerator="cpu", callbacks=[callback], default_root_dir=tmp_path,
        logger=False, enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False,
    )  # fmt: skip
    torch.manual_seed(0)
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(1024, 8), batch_size=16))
    assert callback.sentinel is not None
    found = callback.sentinel.job
    assert (found.given.steps, found.is_over) == (30, True)
    if rate:
        assert found.refutations == []
        assert (found.step, trainer.global_step, found.status) == (30, 30, 0)
    else:
        assert [refutation.check for refutation in found.refutations] == ["rates_off"]
        assert trainer.global_step < 30
    assert len(bundles(tmp_path / "evidence")) == 1


def test_a_full_disk_breaks_no_loop(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentinel that cannot write warns, at its start or later, and the loop goes on without it."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    watch = sentinel(project, tmp_path, on_refute="stop")
    with monkeypatch.context() as patch:
        patch.setattr(FactFile, "append", full)
        with pytest.warns(UserWarning, match="THE SENTINEL FAILED.*No space left"):
            watch.step(1, loss=float("nan"))
        with pytest.warns(UserWarning, match="THE SENTINEL FAILED.*No space left"):
            late = sentinel(project, tmp_path / "late", on_refute="stop")
    for each in (watch, late):
        each.step(2, loss=float("nan"))
        each.end()


def test_an_interrupted_loop_is_not_at_fault(project: Project, tmp_path: Path) -> None:
    """Ctrl-C is the user's."""
    watch = sentinel(project, tmp_path)
    watch.step(1, loss=1.0)
    watch.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert (watch.job.is_over, watch.job.refutations) == (True, [])
