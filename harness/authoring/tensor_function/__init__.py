"""Metamorphic and differential tests for functions of tensors.

    from harness.authoring.tensor_function import Draw, TensorFunction, try_relations

    def example(draw: Draw):
        rows, width = draw.size("rows"), draw.size("width")
        return draw.tensor(rows, width), draw.tensor(rows, width)

    findings = try_relations(TensorFunction.of(silu_mul, reference, example))
    findings.violations     # {} for a correct function

You give a function, an independent reference and a generator of arguments. The relations of `catalogue.RELATIONS`
follow from them, as torch's OpInfo derives many tests from one description of an operator.
"""

from harness.authoring.tensor_function.adversary import Findings
from harness.authoring.tensor_function.call import Answer, Call, Caller
from harness.authoring.tensor_function.catalogue import RELATIONS, try_relations
from harness.authoring.tensor_function.drawing import Draw
from harness.authoring.tensor_function.function import TensorFunction
from harness.authoring.tensor_function.hosting import Host
from harness.authoring.tensor_function.likeness import like
from harness.authoring.tensor_function.tolerance import UnfitReference

__all__ = [
    "RELATIONS",
    "Answer",
    "Call",
    "Caller",
    "Draw",
    "Findings",
    "Host",
    "TensorFunction",
    "UnfitReference",
    "like",
    "try_relations",
]
