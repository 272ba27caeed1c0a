"""The defects of a source are the same changed lines every time."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.tools.planting.claim_trials import project_copy
from harness.tools.planting.defects import defects
from harness.tools.planting.reach import used_lines


def planted(text: str) -> dict[str, set[str]]:
    """The changed lines of a source, by operator."""
    content = text.encode()
    found: dict[str, set[str]] = {}
    for defect in defects("toy.py", content):
        compile(defect.planted(content), "toy.py", "exec")
        found.setdefault(defect.operator, set()).add(defect.after)
    return found


@pytest.mark.parametrize(
    ("line", "operator", "becomes"),
    [
        ("x = 3", "constant", {"x = 4"}),
        ("x = 1e-6", "constant", {"x = 2e-06"}),
        ("x = True", "constant", {"x = False"}),
        ("x = -y", "sign", {"x = (y)"}),
        ("x = (é + y) * 2", "sign", {"x = (é - y) * 2"}),
        ("x *= y", "arithmetic", {"x /= y"}),
        ("x = a < b <= c", "comparison", {"x = a <= b <= c", "x = a < b < c"}),
        ("x = a is not b", "comparison", {"x = a is b"}),
        ("x = a and b or c", "condition", {"x = a or b or c", "x = a and b and c"}),
        ("x = [a for a in b if a]", "condition", {"x = [a for a in b if True]"}),
        ("x.step()", "dropped-statement", {"pass"}),
        ("self.x = y", "dropped-statement", {"pass"}),
        ("f(a, b, c)", "swapped-arguments", {"f(b, a, c)", "f(a, c, b)"}),
        ("x = y.mean()", "reduction", {"x = y.sum()"}),
        ("x = y[1:n]", "off-by-one", {"x = y[(1) + 1:n]", "x = y[1:(n) - 1]"}),
        ("x = y[-1]", "off-by-one", {"x = y[-2]"}),
        ("x = range(n)", "off-by-one", {"x = range((n) - 1)"}),
        ("x = y.detach().z", "detach", {"x = y.z"}),
        ("x = y.softmax(dim=-1)", "axis", {"x = y.softmax(dim=-2)"}),
        ("x = y @ z.T", "transposition", {"x = y @ z"}),
        ("x = y.to(torch.float32)", "dtype", {"x = y.to(torch.bfloat16)"}),
        ("x = y.clone()", "in-place", {"x = y"}),
        ("x = x + y", "in-place", {"x += y"}),
        ("x = cache[a, b]", "cache-key", {"x = cache[(b,)]", "x = cache[(a,)]"}),
        ("key = a, b", "cache-key", {"key = (b,)", "key = (a,)"}),
        ("def f(a): return a", "remembered-result", {
            'def f(a): return globals().setdefault("_kept_f", (a))',
            'def f(a): return globals().setdefault(("_kept_f", str([getattr(one, "shape", None) '
            "for one in list(locals().values())])), (a))"}),
        ("x = y.shape[2]", "equal-sizes", {"x = y.shape[1]"}),
        ("x = y.size(-1)", "equal-sizes", {"x = y.size(-2)"}),
        ("x.step()", "swallowed-exception", {'with __import__("contextlib").suppress(Exception): x.step()'}),
        ("batch = f()", "data", {"batch = f(); batch = batch[: max(1, len(batch) // 2)]",
                                 "batch = f(); batch = batch[:1].expand_as(batch)",
                                 "batch = f(); batch = batch.where(batch.new_ones(batch.shape, dtype=float)"
                                 ".bernoulli(0.9).bool(), batch.roll(1, -1))"}),
        ("f(batch_size=y)", "data", {"f(batch_size=max(1, (y) // 2))", "f(batch_size=1)"}),
        ("labels = y", "labels", {"labels = y; labels = labels.roll(1, 0)", "labels = y; labels = labels.roll(1, -1)",
                                  "labels = y; labels = labels // 2 * 2"}),
        ("f(labels)", "labels", {"f(labels.roll(1, 0))"}),
        ("loss = f()", "loss", {"loss = f(); loss = loss * 0.5", "loss = f(); loss = loss.detach()"}),
        ("x = torch.optim.AdamW(y)", "optimizer", {"x = torch.optim.Adam(y)"}),
        ("f(lr=y)", "rate", {"f(lr=10 * (y))", "f(lr=0.5 * (y))"}),
        ("group['lr'] = y", "rate", {"group['lr'] = 10 * (y)", "group['lr'] = 0.5 * (y)"}),
        ("f(std=y)", "initialisation", {"f(std=4 * (y))"}),
        ("f(max_norm=y)", "optimizer", {"f(max_norm=0.1 * (y))"}),
        ("x = F.gelu(y)", "activation", {"x = F.relu(y)", "x = (y)"}),
        ("f(weight_decay=y)", "regularisation", {"f(weight_decay=0.0)", "f(weight_decay=10 * (y))"}),
        ("model.train()", "regularisation", {"model.eval()"}),
        ("f(warmup_steps=y)", "schedule", {"f(warmup_steps=2 * (y))"}),
        ("f(max_steps=y)", "schedule", {"f(max_steps=max(1, (y) // 2))"}),
    ],
)  # fmt: skip
def test_operators(line: str, operator: str, becomes: set[str]) -> None:
    """Each operator makes a plausible mistake, and every result compiles."""
    assert planted(f"{line}\n")[operator] == becomes


@pytest.mark.parametrize(
    ("line", "operator", "becomes"),
    [
        ("x = 2.0f * y;", "kernel-constant", {"x = 4.0f * y;"}),
        ("x = 1u;", "kernel-constant", {"x = 2u;"}),
        ("x = a - b * -c;", "kernel-operator", {"x = a + b * -c;", "x = a - b / -c;"}),
        ("if (i < n) x = 0;", "kernel-comparison", {"if (i <= n) x = 0;"}),
        ("if (i < n) x = 0;", "kernel-guard", {"if (true) x = 0;", "if (!(i < n)) x = 0;"}),
        ("x = a && b;", "kernel-condition", {"x = a || b;"}),
        ("x = y[i + j];", "kernel-index", {"x = y[(i + j) + 1];"}),
        ("m = fmaxf(m, x);", "kernel-function", {"m = fminf(m, x);"}),
        ("__syncthreads();", "kernel-dropped", {";"}),
    ],
)
def test_operators_of_kernels(line: str, operator: str, becomes: set[str]) -> None:
    """Kernels in their own files and in strings of Python are changed."""
    beside: dict[str, set[str]] = {}
    for defect in defects("toy.cu", f"{line}\n".encode()):
        beside.setdefault(defect.operator, set()).add(defect.after)
    assert beside[operator] == becomes
    inside = planted(f'K = ("""__global__ void é() {{\n{line}\n}}""")\n')
    assert inside[operator] == becomes


@pytest.mark.parametrize(
    "line",
    [
        "__global__ void __launch_bounds__(4 * 8) k(const float* a, float* __restrict__ b)",
        "__shared__ float tile[8][TILE + 1];",
        "@group(0) @binding(1) var<storage, read> a: array<vec4<f32>, 4>;",
        "@compute @workgroup_size(64, 1) fn f(a: vec3u) -> u32;",
        "#define SIDE 16",
        "// x = y[i + 1];",
    ],
)
def test_what_no_compiler_would_take_is_left_alone(line: str) -> None:
    """Types, attributes, directives and sizes of arrays are not changed."""
    assert defects("toy.cu", f"{line}\n".encode()) == []


def test_what_is_only_said_is_left_alone() -> None:
    """Messages, annotations and f-strings do not change what the code does, so they are left alone."""
    text = 'def f(x: Literal[3]) -> Literal[4]:\n    """Is 5."""\n    print(f"{x + 1}")\n'
    assert planted(text) == {}
    assert set(planted('raise ValueError("no", 3)\n')) == {"dropped-statement"}


def test_a_defect_has_a_name_a_place_and_a_patch() -> None:
    """A defect has a name, a place, and a patch of one range of lines."""
    content = b"class A:\n    def f(self, x):\n        return g(\n            x, 1,\n        )\n"
    found = defects("a/b.py", content)
    assert [defect.id for defect in found] == [
        "a/b.py:3:remembered-result:0", "a/b.py:3:remembered-result:1", "a/b.py:4:swapped-arguments:0",
        "a/b.py:4:constant:0",
    ]  # fmt: skip
    assert {defect.within for defect in found} == {"A.f"}
    assert (found[3].before, found[3].after) == ("x, 1,", "x, 2,")
    changed = [line for line in found[3].patch(content).splitlines() if line[:1] in "+-"]
    assert changed == ["--- a/a/b.py", "+++ b/a/b.py", "-            x, 1,", "+            x, 2,"]
    assert defects("a/b.py", content) == found
    assert defects("a/b.py", b"(") == []


def test_what_only_an_import_runs_counts_if_it_is_used() -> None:
    """Constants, also through other constants, and class attributes count, unless no executed function names them."""
    text = b"A = 1\nB = A + 1\nC = 3\nclass D:\n    rate = 4\n    other = 5\ndef f(x=6):\n    return B, x.rate\n"
    text += b"def g(x=7):\n    return C\n"
    assert used_lines({"toy.py": (text, {1, 2, 3, 4, 5, 6, 7, 8, 9})}) == {"toy.py": {1, 2, 5, 7, 8}}


def test_what_a_compiler_reads_counts_if_it_is_used() -> None:
    """Python does not execute the lines of a kernel. They count if the text's first line ran."""
    text = (
        b"@triton.jit\ndef k(x):\n    y = x\n@jit()\ndef other(x):\n    y = x\nT = (\n  1,\n)\ndef f():\n    k[1](T)\n"
    )
    assert used_lines({"toy.py": (text, {1, 2, 4, 5, 7, 10, 11})}) == {"toy.py": {2, 3, 7, 8, 9, 10, 11}}


def test_a_variable_of_a_function_uses_no_other_of_its_name() -> None:
    """A kernel `k` counts for the function that launches it, not for functions with a variable or an argument `k`."""
    kernel = b"@triton.jit\ndef k(x):\n    return x\n"
    ran = {1, 2, 4, 5, 6}
    for text in (b"def f(n):\n    k = n\n    return k\n", b"def f(k):\n    n = k\n    return n\n"):
        assert used_lines({"toy.py": (kernel + text, ran)}) == {"toy.py": {4, 5, 6}}
    text = b"def f(n):\n    global k\n    k = k[1](n)\n"
    assert used_lines({"toy.py": (kernel + text, ran)}) == {"toy.py": {2, 3, 4, 5, 6}}


def test_a_copy_of_a_project_differs_in_one_file(tmp_path: Path) -> None:
    """Removing the copy removes no file of the project."""
    (tmp_path / "a" / "__pycache__").mkdir(parents=True)
    (tmp_path / "a" / "b.py").write_text("1")
    (tmp_path / "a" / "c.py").write_text("2")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "e").write_text("3")
    with project_copy(tmp_path, "a/b.py", b"changed") as copy:
        assert (copy / "a" / "b.py").read_text() == "changed"
        assert (copy / "a" / "c.py").read_text() == "2"
        assert (copy / "d" / "e").read_text() == "3"
        assert not (copy / "a" / "__pycache__").exists()
    assert not copy.exists()
    assert (tmp_path / "a" / "b.py").read_text() == "1"
    assert (tmp_path / "d" / "e").read_text() == "3"
