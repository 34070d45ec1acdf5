"""Inputs that a person gets wrong, drawn from a seed: flags, specs, plans, modules, environments, kernels.

Each is wrong by construction: a number out of its range, a name that nothing has, a text cut short. What is drawn is
where and how.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from wspec.options import Spec, env_name, flag_name, table

HERE = Path(__file__).parent
KERNEL = "sample.py:product"


@dataclass(frozen=True, slots=True)
class Case:
    """One command that must be refused. Files lie in the folder that it runs in."""

    kind: str
    arguments: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    cold: bool = False  # in a process of its own from the start: what Triton reads when it is imported

    def __str__(self) -> str:
        env = " ".join(f"{name}={value!r}" for name, value in self.env.items())
        return f"{self.kind}: {env}{' ' if env else ''}wspec {' '.join(map(repr, self.arguments))}"


@dataclass(frozen=True, slots=True)
class Good:
    """What wrong inputs are made of: a plan and a module of the sample kernel, as the command line prints them."""

    plan: str
    module: str


def draw(seed: int, count: int, good: Good) -> list[Case]:
    """So many, of each kind alike."""
    random = Random(seed)
    return [KINDS[at % len(KINDS)](random, good) for at in range(count)]


# ---------------------------------------------------------------------------------------------------- flags

_NO_NUMBER = ("", "x", "three", "1e99", "0x", "nan", "--", "1,000", "½")
_COMMANDS = ("compile", "plan", "explain", "check", "dump", "graph", "run", "trace")


def _flag(random: Random, good: Good) -> Case:
    name = random.choice(list(table()))
    return Case("flag", (_command(random), *_more(random), f"{flag_name(name)}={_bad(random, table()[name])}"))


def _command(random: Random) -> str:
    return random.choice(("compile", "plan", "explain", "check"))


def _more(random: Random) -> tuple[str, ...]:
    return (KERNEL,)


def _bad(random: Random, spec: Spec) -> str:
    """A text that the option does not take."""
    if spec.kind is bool:
        return random.choice(("2", "-1", "maybe", "ja", "0.5"))
    if spec.choices:
        return random.choice(("bogus", "-1", "3.5", str(max(map(str, spec.choices))) + "x"))
    if spec.kind is int:
        step = [str(spec.low + 1)] if spec.step > 1 else []
        return random.choice(
            (str(spec.low - 1), str(spec.high + 1), str(10 ** random.randint(3, 30)), "one", "1.5", *step)
        )
    return "/dev/null/" + "x" * random.randint(1, 8)


def _launch_flag(random: Random, good: Good) -> Case:
    command = random.choice(("compile", "plan", "explain"))
    warps = random.choice(
        ("0", "-1", "3", "5", "6", "7", "12", "33", "-8", "1000000", str(2 ** random.randint(6, 60)), "x")
    )
    stages = random.choice(("x", "1.5", ""))
    flag = random.choice((f"--num-warps={warps}", f"--num-warps={warps}", f"--num-stages={stages}"))
    return Case("flag", (command, KERNEL, flag))


def _grid(random: Random) -> str:
    huge = 10 ** random.randint(7, 20)
    return random.choice((str(huge), f"{huge},{huge}", "0", "1,0", "-1", "x", "1,2,3,4", "1,,2", "", "1.5", "1x2"))


def _trace_flag(random: Random, good: Good) -> Case:
    launch = ("trace", KERNEL, "--set", "k=512")
    flags = random.choice(
        (
            ("--grid", _grid(random)),
            ("--grid", _grid(random)),
            ("--grid", "4,4", "--program", random.choice(("99", "0,9", "x", "-1", "0,0,1"))),
            ("--grid", "4", "--set", random.choice(("k", "k=", "k=x", "q=3", "k=1.5", "=3"))),
            ("--grid", "4", "--sm-blocks", random.choice(("0", "-1", "1000", "x"))),
            ("--grid", "4", "--clock", random.choice(("-5", "nan", "inf", "x"))),
            ("--grid", "4", "--detail", "bogus"),
            ("--grid", "4", "-o", "no/such/folder/t.json"),
            ("--random",),
            ("--grid", "4", "--bogus", "3"),
            ("--grid", "4", "--set", f"k={10 ** random.randint(12, 18)}"),
        )
    )
    joined = (f"{flags[0]}={flags[1]}", *flags[2:]) if len(flags) > 1 else flags
    return Case("flag", (*launch, *joined))


def _run_flag(random: Random, good: Good) -> Case:
    sizes = "x_ptr=1024,y_ptr=1024,n=1024"
    flags = random.choice(
        (
            ("--random",),
            ("--random", "--sizes", random.choice(("x_ptr=5", "bogus=3", "x", "n=1024x2", "n=nan", "x_ptr=-4"))),
            ("--random", "--sizes", sizes, f"--grid={_grid(random)}"),
            ("--random", "--sizes", f"x_ptr={10 ** random.randint(10, 18)},y_ptr=1024,n=8"),
            ("--random", "--sizes", sizes, "--seeds", random.choice(("0", "-3", "x", ""))),
            ("--random", "--sizes", sizes, "--schedule", "bogus"),
            ("--replay", "gone.json"),
            ("--replay", "sample.toml"),
            (),
            ("--grid", "4"),
            ("--specialized-only", "--random", "--sizes", sizes),
            ("--random", "--sizes", sizes, "--specialized-only", "--plain-only"),
        )
    )
    return Case("flag", ("run", "sample.py:scale", *flags))


_RUNS = (
    ("sample.toml",),
    ("sample.toml", "sample.py"),
    ("sample.py@1", "sample.py@99"),
    ("gone.jsonl", "gone.jsonl"),
    ("/dev/null",),
    (".",),
    ("a", "b", "c"),
    (),
)
"""That cannot be compared."""


def _other_flag(random: Random, good: Good) -> Case:
    name = "".join(random.choice("abcdefgh") for _ in range(6))
    return Case(
        "flag",
        random.choice(
            (
                (name,),
                (),
                ("compile",),
                ("compile", f"{name}.py:product"),
                ("compile", f"sample.py:{name}"),
                ("compile", "sample.py"),
                ("compile", KERNEL, f"--{name}"),
                ("compile", KERNEL, "--variant", name),
                ("compile", KERNEL, "--spec", f"{name}.toml"),
                ("compile", KERNEL, "--plan", f"{name}.toml"),
                ("compile", KERNEL, "-o", "/dev/null/x"),
                ("dump", KERNEL),
                ("dump", KERNEL, "--stage", name),
                ("dump", KERNEL, "--diff", "ttgir", name),
                ("dump", KERNEL, "--stage", "ttgir", "--form", name),
                ("dump", KERNEL, "--stage", "ttgir", "-o", "no/such/file"),
                ("graph", KERNEL, "--format", name),
                ("graph", "sample.toml"),
                ("graph", KERNEL, "-o", "no/such/file.svg"),
                ("check", KERNEL, "--stage", name),
                ("check", KERNEL, "--limit", random.choice(("-1", "nan", "x"))),
                ("check", KERNEL, "--all", "--variant", "small"),
                ("check", "module.ttgir", "--disjoint", random.choice((name, "a:b", "a_desc:", "0:1:2"))),
                ("check", "module.ttgir", "--num-warps", "4"),
                ("opt", "module.ttgir", "--passes", name),
                ("opt", f"{name}.ttgir"),
                ("graph", KERNEL, "--tasks", "--format", random.choice(("dot", "json", name))),
                ("graph", KERNEL, "--tasks", "-o", random.choice(("no/such/file.svg", "tasks.png", "tasks"))),
                ("bench", name),
                ("bench", "--compare", *random.choice(_RUNS)),
                ("bench", "--plot", "changes.svg"),
                ("bench", "attention", "--record", "no/such/file"),
                ("calibrate", "--only", name),
                ("calibrate", "--base", name),
                ("demo", "--head-dim", "96"),
                ("compile", KERNEL, "--sig", random.choice(_SIGS)),
                ("compile", KERNEL, "--arg", random.choice(_ARGS)),
                ("compile", KERNEL, "--const", random.choice(_CONSTS)),
                ("plan", KERNEL, "--json", "no/such/file"),
                ("plan", KERNEL, "--machine", name),
            )
        ),
        files={"module.ttgir": good.module.encode()},
    )


_SIGS = ("a_desc", "k=i32", "a_desc=tensordesc<bf16[]>,k=i32", "a_desc=*f16", "=i32", "k=i33, M=1", "x=")
_ARGS = (
    "k",
    "k=i33",
    "k=*",
    "bogus=i32",
    "M=i32",
    "a_desc=tensordesc<bf16[7,",
    "a_desc=tensordesc<bf17[128,64]>",
    "k=:16",
)
_CONSTS = ("M", "M=tl.bogus", "M=bogus", "q=3", "M=[1", "N=100", "M=0", "M=-128", "K=3", "M='x'", "M=None", "M=1.5")


# ---------------------------------------------------------------------------------------------------- specs


def _spec(random: Random, good: Good) -> Case:
    text = (HERE / "sample.toml").read_text()
    change = random.choice(
        (
            ("[product.small]", "[product.small"),
            ("[product.small]", "[product]\nsmall = 3\n[produce.small]"),
            ("[product.small]", "[other.small]"),
            ("num_warps = 8", f"num_warps = {random.choice((0, 3, -4, 7, 2**40))}"),
            ("num_warps = 8", 'num_warps = "eight"'),
            ("num_warps = 8", "num_warp = 8"),
            ("num_warps = 8", "depth = 99"),
            ("num_warps = 8", "depth = true"),
            ("M = 128", "M = 100"),
            ("M = 128", 'M = "tl.bogus"'),
            ("M = 128, ", ""),
            ("M = 128", "Q = 128"),
            ("M = 128", "M = [1, 2]"),
            ('k = "i32:16"', 'k = "i99"'),
            ('k = "i32:16"', "k = 3"),
            ('k = "i32:16"', 'k = ""'),
            ('k = "i32:16"', ""),
            ('k = "i32:16"', 'kk = "i32"'),
            ("bf16[128, 64]", "bf16[128"),
            ("bf16[128, 64]", "bf16[0, 64]"),
            ("bf16[128, 64]", "bf16[128, 64, 4]"),
            ("bf16[128, 64]", "bf99[128, 64]"),
            ("bf16[64, 256]", "bf16[64, 128]"),
            ("bf16[128, 64]", "fp32[128, 64]"),
            ("options =", "option ="),
            ("options = {", 'like = "small"\noptions = {'),
            ("options = {", 'like = "gone"\noptions = {'),
            ("options = {", "like = 3\noptions = {"),
            ("options = { num_warps = 8 }", "options = 8"),
            ("constexprs = { M", "signature = 3\nconstexprs = { M"),
            ("[product.small]", "\x00"),
            ("= 128", "== 128"),
            (text, ""),
            (text, "[]"),
            ("options = {", "example = 3\noptions = {"),
        )
    )
    return Case("spec", (_command(random), KERNEL), files={"sample.toml": text.replace(*change, 1).encode()})


# ---------------------------------------------------------------------------------------------------- plans


def _plan(random: Random, good: Good) -> Case:
    lines = good.plan.split("\n")
    numbers = [at for at, line in enumerate(lines) if re.fullmatch(r"\w+ = -?[\d.]+", line)]
    at = random.choice(numbers)
    name = lines[at].partition(" = ")[0]
    # What a hand may turn (depth, registers) is turned to where no kernel goes.
    value = random.choice(
        (-1 - random.randint(1, 9), 10 ** random.randint(13, 25), '"x"', "true", "[1]", "nan", "-inf")
    )
    lines[at] = f"{name} = {value}"
    return Case("plan", (_command(random), KERNEL, "--plan", "p.toml"), files={"p.toml": "\n".join(lines).encode()})


def _broken_plan(random: Random, good: Good) -> Case:
    text = good.plan
    changed = random.choice(
        (
            text.replace("fingerprint = ", 'fingerprint = "x" #'),
            text.replace("[[tasks]]", "[tasks]", 1),
            text.replace("kind = ", "kin = ", 1),
            text.replace('kind = "producer"', 'kind = "consumer"'),
            text.replace("warps = 4", "warps = 3"),
            text.replace("warps = 1\n", "warps = 3\n"),
            text.replace("replicas = 2", f"replicas = {random.randint(3, 8)}"),
            text.replace("registers = 24", f"registers = {random.choice((23, 25, 0, 264))}"),
            text.replace("depth = 4", f"depth = {random.randint(9, 99)}"),
            text.replace("depth = 4", "depth = 0"),
            text.replace("loads = [51]", f"loads = [{random.randint(52, 99)}]"),
            text.replace("loads = [51]", "loads = []"),
            text.replace("loop = 50", f"loop = {random.choice((1, 49, 51, 9999))}"),
            text.replace("sliced_dim = 0", "sliced_dim = 1"),
            text.replace("reused = true", "reused = false"),
            text.replace("stays = false", "stays = true"),
            text.replace("buffer_bytes = 16384", f"buffer_bytes = {random.choice((16383, 8192, 1))}"),
            text.replace('name = "b"', 'name = "a"'),
            text.replace("source_warps = 8", "source_warps = 4"),
            text.replace("version = 2", f"version = {random.choice((0, 1, 3, 99))}"),
            text.replace("stage1 = []", "stage1 = [51]"),
            text[: random.randint(1, 300)],
            text + "\nbogus = 3\n[[tasks]]\n",
            "",
            "{}",
            "\x00\x01",
            text.replace("in_flight = true", "in_flight = 7"),
            text.replace("blocks_per_sm = 1", f"blocks_per_sm = {random.randint(2, 32)}"),
        )
    )
    assert changed != text
    return Case("plan", (_command(random), KERNEL, "--plan", "p.toml"), files={"p.toml": changed.encode()})


# -------------------------------------------------------------------------------------------------- modules


def _module(random: Random, good: Good) -> Case:
    text = good.module
    at = random.randrange(len(text) // 8, len(text) * 3 // 4)
    number = random.choice(re.findall(r"%\d+", text))
    changed = random.choice(
        (
            text[:at],
            text[:at] + "}" + text[at:],
            "module {}",
            "module {",
            '"builtin.module"() ({}) : () -> ()',
            "",
            "\x00" * 9,
            ".version 8.7\n.target sm_90a",
            'target triple = "nvptx64"',
            "{}",
            "def f(): pass",
            text.replace("tt.func", "tt.fun"),
            text.replace('"ttg.num-warps" = 8', f'"ttg.num-warps" = {random.choice((0, -1, 3, 7))}'),
            text.replace("tensor<128x256xf32", "tensor<128x255xf32", 1),
            text.replace("scf.yield", "scf.yeld", 1),
            text.replace("-> (i32)", "-> (i33)", 1),
            text.replace(f"{number} =", "%bogus =", 1),
            text.replace("#mma", "#mna", 1),
            text.replace(" : (", " : ", 1),
            text.replace("tensor<", "tensr<", 1),
        )
    )
    if changed == text:
        return _module(random, good)
    command = random.choice(
        (("check",), ("compile",), ("plan",), ("explain",), ("graph",), ("run", "--random"), ("trace",))
    )
    return Case("module", (*command, "m.ttgir"), files={"m.ttgir": changed.encode()})


# --------------------------------------------------------------------------------------------- environments


def _environment(random: Random, good: Good) -> Case:
    name = random.choice([name for name in table() if len(name) > 4])
    at = random.randrange(1, len(name) - 1)
    swapped = name[:at] + name[at + 1] + name[at] + name[at + 2 :]
    if swapped == name:
        swapped = name + "s"
    env = random.choice(
        (
            {f"WSPEC_{swapped.upper()}": "1"},
            {env_name(name): _bad(random, table()[name])},
            {env_name(name): _bad(random, table()[name])},
            {"TRITON_CACHE_DIR": ""},
            {"TRITON_CACHE_DIR": "/dev/null"},
            {"TRITON_CACHE_DIR": "/dev/null/x"},
            {"TRITON_CACHE_DIR": "/proc/x"},
            {"PTXAS_OPTIONS": f"--{swapped}", "TRITON_CACHE_DIR": "fresh"},
            {"TRITON_PTXAS_PATH": "/dev/null", "TRITON_CACHE_DIR": "fresh"},
            {"WSPEC_MACHINE": swapped},
            {"WSPEC_DUMP": "/dev/null/x"},
        )
    )
    return Case("environment", ("compile", KERNEL), env, cold=any(name.endswith("PTXAS_OPTIONS") for name in env))


# -------------------------------------------------------------------------------------------------- kernels

_BODIES = (
    "tl.store(x, y)",
    "tl.store(x + tl.arange(0, 3), 1.0)",
    "tl.bogus(x)",
    "f(x, n)",
    "x.bogus()",
    "while True: pass",
    "tl.store(n, 1.0)",
    "tl.dot(x, x)",
    "tl.load(x, mask=3, other=[1])",
    "return tl.zeros([100], tl.float32)",
    "import os",
    "tl.store(x, tl.inline_asm_elementwise('bogus $0;', '=f', [], tl.float32, True, 1))",
    "tl.static_assert(False, 'no')",
    "tl.zeros([1 << 30], tl.float32)",
    "assert tl",
    "try:\n        pass\n    except:\n        pass",
    "lambda: 3",
    "yield 3",
    "tl.store(x, 1.0, cache_modifier='.bogus')",
    "a, b = x",
    "for i in x: pass",
    "tl.store(x[0], 1.0)",
    "x = undefined_name",
)
_FILES = (
    "def f(:",
    "raise ValueError('no')",
    "import sys; sys.exit(3)",
    "import no_such_module",
    "",
    "x = 3",
    "1 / 0",
    "def f(x): pass",
    "import triton\nf = triton.jit(3)",
    "from nowhere.at_all import f",
    "assert False",
)


def _kernel(random: Random, good: Good) -> Case:
    if random.random() < 0.4:
        text = random.choice(_FILES)
    else:
        body = random.choice(_BODIES)
        text = f"import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef f(x, n):\n    {body}\n"
    arguments = ("compile", "f.py:f", "--sig", "x=*fp32:16, n=i32")
    return Case("kernel", arguments, files={"f.py": text.encode()})


KINDS: tuple[Callable[[Random, Good], Case], ...] = (
    _flag,
    _launch_flag,
    _trace_flag,
    _run_flag,
    _other_flag,
    _spec,
    _plan,
    _broken_plan,
    _module,
    _module,
    _environment,
    _kernel,
)
