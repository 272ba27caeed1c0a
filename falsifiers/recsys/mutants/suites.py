"""Test suites that run less than their contract says."""

from __future__ import annotations

from falsifiers.recsys.reference.pipeline_suite import PipelineSuite

__all__ = ["Broken", "Collapsed", "HalfFiltered", "RepeatedValue", "SkippedInside", "XfailedHalf"]


class HalfFiltered(PipelineSuite):
    """Only the tests without contextual features run; those with them would show a defect."""

    def arguments(self) -> list[str]:
        """Select them."""
        return [*super().arguments(), "-k", "contextual_feature_names1"]


class _Edited(PipelineSuite):
    """The file with some text replaced."""

    old, new = "", ""

    def arguments(self) -> list[str]:
        """Write the file."""
        text = self.file.read_text()
        if self.old not in text:
            raise ValueError(f"{self.file} has no {self.old!r}")
        edited = self.workspace / f"test_{type(self).__name__.lower()}.py"
        edited.write_text(text.replace(self.old, self.new))
        return [str(edited)]


class Collapsed(_Edited):
    """A parameter has one of its values."""

    old, new = "[10, 0]", "[10]"


class RepeatedValue(_Edited):
    """A parameter has one of its values twice, so that as many tests run."""

    old, new = "[10, 0]", "[10, 10]"


class SkippedInside(_Edited):
    """Prefetching with dynamic tables is skipped in the test's body, as in the source."""

    old = "    case = Case("
    new = """    if pipeline_type == "prefetch" and use_dynamic_emb:
        pytest.skip("Currently, prefetch does not support dynamic embedding")
    case = Case("""


class XfailedHalf(_Edited):
    """Half of the tests are expected to fail, and do not run."""

    old = '@pytest.mark.parametrize("use_dynamic_emb", [False, True])'
    new = """@pytest.mark.parametrize(
    "use_dynamic_emb", [False, pytest.param(True, marks=pytest.mark.xfail(run=False))]
)"""


class Broken(_Edited):
    """Rows that are gathered ahead are not brought up to date, which the tests show."""

    old = "from falsifiers.recsys.reference.pipelines import Pipelines"
    new = "from falsifiers.recsys.mutants.pipelines import StaleRows as Pipelines"
