"""The verdict above and below a capacity, and within the error."""

from harness.tools.probe import AllocatorSettings, Fit, Prediction, predict, verdict
from harness.tools.probe.device_table import device_named
from harness.tools.probe.prediction import examined
from harness.tools.probe.trace import Block, Place, Trace
from tests.tools.probe import steps

MIB = 1024**2


def _step() -> Prediction:
    return predict(steps.mlp, batch=4096)


def test_the_margin_is_unknown_and_its_sides_are_not() -> None:
    prediction = _step()
    needed = next(
        size for size in range(prediction.allocated // 8, 4 * prediction.reserved, MIB)
        if verdict(prediction, size, context=0).fit is not Fit.DOES_NOT_FIT
    )  # fmt: skip
    verdicts = [verdict(prediction, int(needed * factor), context=0).fit for factor in (0.98, 1.02, 1.05, 1.15)]
    assert verdicts == [Fit.DOES_NOT_FIT, Fit.UNKNOWN, Fit.UNKNOWN, Fit.FITS]


def test_memory_of_which_nothing_is_known_is_no_fit() -> None:
    prediction = predict(steps.convolves)
    assert prediction.trace.unmeasured == {"aten::convolution", "aten::convolution_backward"}
    assert verdict(prediction).fit is Fit.UNKNOWN
    assert verdict(prediction, 1, context=0).fit is Fit.DOES_NOT_FIT


def test_the_buffers_of_a_sort_are_counted() -> None:
    prediction = predict(steps.sorts)
    keys, pairs = 4 * 1000 * 1000, 12 * 1000 * 1000
    assert keys + pairs + 2 * pairs <= prediction.allocated < keys + pairs + 2 * pairs + 4 * MIB
    assert verdict(prediction).fit is Fit.FITS


def test_the_context_is_not_the_allocators() -> None:
    prediction = _step()
    assert verdict(prediction, 2 * prediction.reserved, context=0).fit is Fit.FITS
    assert verdict(prediction, 2 * prediction.reserved, context=2 * prediction.reserved).fit is Fit.DOES_NOT_FIT


def test_what_the_allocator_gives_back_makes_a_step_fit_below_its_peak() -> None:
    trace = Trace(starts=[("build", 0)])
    place = Place("build", "aten.empty", "", "", "")
    trace.free(trace.allocate(Block(30 * MIB, place, "")))
    trace.allocate(Block(36 * MIB, place, ""))
    prediction = examined(trace, device_named("H200"), AllocatorSettings())
    assert (prediction.allocated, prediction.reserved) == (36 * MIB, 66 * MIB)
    tight = verdict(prediction, 45 * MIB, context=0)
    assert (tight.fit, tight.retries) == (Fit.FITS, 1)
