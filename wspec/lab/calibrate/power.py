"""The SM clock under the card's power limit: how much of it products, copies and arithmetic cost.

The block is that of `mixed`. The limit acts on a mean of about a second, and a card that was idle starts at its highest
clock whatever it does, so each load runs for longer than that before its clock counts. SMs pause at different times, as
the SMs of a kernel do: the card as a whole draws the mean.
"""

from __future__ import annotations

from wspec.lab.calibrate import mixed
from wspec.lab.calibrate.bench import Bench
from wspec.lab.calibrate.mixed import COUNT, OWN, TILE, Beside
from wspec.lab.calibrate.topic import Quantity, Samples, Topic

KIND, N = "bf16_ss", 128
FROM_MEMORY = 256  # tiles of each SM: ten times what L2 holds
PAUSES = {100: 0, 60: 2200, 30: 6300, 0: 400_000}  # about the share of the tensor core that is left, % -> cycles
LOADS = (
    Beside("alone", "nothing beside it"),
    Beside("arithmetic", "beside a warp group of softmax arithmetic", groups=1),
    Beside("same", "beside copies of the same tiles in all SMs", copies=1),
    Beside("own", "beside copies of tiles of an SM's own from L2", copies=1, stride=OWN * TILE),
    Beside("memory", "beside copies of tiles from memory", 0, 1, FROM_MEMORY * TILE, FROM_MEMORY),
    Beside("all", "beside arithmetic and copies of its own from L2", 1, 1, OWN * TILE),
)
LAUNCH_CYCLES = 200_000_000
BEFORE, COUNTED = 8, 4  # launches of a load whose clock does not count, and that of which it does


def quantities() -> tuple[Quantity, ...]:
    found = []
    for load in LOADS:
        what = f"every SM with {KIND} m64n{N}k16, {load.what}; by about the tensor core's share, %"
        found.append(Quantity(f"mhz_{load.name}", "MHz", what, "share"))
        found.append(Quantity(f"share_{load.name}", "%", "the tensor core's share then", "share"))
        if load.groups:
            found.append(Quantity(f"pairs_{load.name}", "lanes/clk/SM", "pairs of a softmax then", "share"))
        if load.copies:
            found.append(Quantity(f"bytes_{load.name}", "bytes/clk/SM", "bytes copied then", "share"))
    return tuple(found)


def measure(bench: Bench) -> Samples:
    source = mixed.random_tiles(bench, bench.sm_count * FROM_MEMORY)
    bench.fill(0x3F003F00)
    found: Samples = {quantity.name: {} for quantity in quantities()}
    both = [(load, share) for load in LOADS for share in PAUSES]
    turns = [both] if bench.quick else [both, both[::-1]]  # a card grows warm
    before, counted = (0, 1) if bench.quick else (BEFORE, COUNTED)
    for load, share in (one for turn in turns for one in turn):
        reps = max(1, LAUNCH_CYCLES // (COUNT * 128 + PAUSES[share]))
        code = (KIND, N, mixed.PAIR.name)
        runs = [mixed.launch(bench, code, source, load, PAUSES[share], reps) for _ in range(before + counted)]
        for one in runs[before:]:
            _keep(found, f"mhz_{load.name}", share, one.mhz)
            _keep(found, f"share_{load.name}", share, 100 * N / 2 / one.interval)
            if load.groups:
                _keep(found, f"pairs_{load.name}", share, one.lanes)
            if load.copies:
                _keep(found, f"bytes_{load.name}", share, one.bytes)
    return {name: dict(sorted(table.items())) for name, table in found.items()}


def _keep(found: Samples, name: str, share: int, value: float) -> None:
    found[name].setdefault(share, []).append(value)


TOPIC = Topic(
    "power",
    f"the block of mixed on every SM, {BEFORE + COUNTED} launches of about {LAUNCH_CYCLES // 10**6} million cycles in "
    f"a row, of which the last {COUNTED} count; all loads forwards, then backwards",
    (mixed.MODULES[1],),
    quantities(),
    measure,
)
