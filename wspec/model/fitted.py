"""Every constant of the planner that is neither measured by a calibration nor derived: what it is, what it was fitted
to, and what it costs on kernels it was not fitted to. There is no other place for such a number; those that belong to a
card stand in `[fitted]` of its description, and here with their names alone.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fitted:
    """One number that somebody set."""

    value: float | None  # None: in the machine description
    what: str
    to: str  # what it was fitted to
    elsewhere: str  # what is known of it on other kernels


TABLE: dict[str, Fitted] = {}


def _set(name: str, value: float, what: str, to: str, elsewhere: str) -> float:
    TABLE[name] = Fitted(value, what, to, elsewhere)
    return value


_INT8 = "products with int8 and int4 weights, one block an SM (docs/chains.md)"
_NOT_TRIED = "not tried on others"

CORE_RATE = _set(
    "core_rate", 0.5, "part of the CUDA cores' rate that computing on tiles for a product reaches", _INT8,
    "beside wgmma a softmax gets 0.59 of it with two warp groups and 0.48 with one (mixed.softmax_pair_rate)",
)  # fmt: skip
REGISTER_OPERAND = _set(
    "register_operand", 190.0, "cycles of waits, of reading a tile and of issuing and awaiting a product of registers",
    _INT8, _NOT_TRIED,
)  # fmt: skip
PLAIN_CONVERTING = _set(
    "plain_converting", 320.0, "cycles more of an iteration of Triton's own loop that makes an operand", _INT8,
    "two loads and meetings are 304 by calibration (tma_load.issue, handshakes.bar_sync)",
)  # fmt: skip
UNPACKED_PAIR = _set(
    "unpacked_pair", 1.5, "instructions more for an element of a pair of bytes that Triton packs first",
    "counted in SASS of int8 products", "a count, the same elsewhere",
)  # fmt: skip
HELPER_SMEM = _set(
    "helper_smem", 128.0, "bytes a cycle that a third task moves between shared memory and registers",
    _INT8 + " and persistent products", "the calibrated rate of either way alone is 128 too",
)  # fmt: skip
TILE_TRIPS = _set(
    "tile_trips", 32, "iterations that a tile is multiplied for, where the kernel does not say", "K = 2048, 64 deep",
    "what a tile costs beside its loop is twice as much of an iteration at half of it; decides nothing but the gate's "
    "last percent",
)  # fmt: skip
MARGIN = _set(
    "margin", 0.97,
    "specializing, or a third task, is taken where it is expected to take at most this part of the time",
    "shipped kernels, for which the model is off by about that",
    "decides none of them: all are 3 % apart and more; of kernels drawn at random it leaves alone products with rings "
    "of two, 0.92 to 1.12 x plain (docs/results/drawn.md)",
)  # fmt: skip
TRIED = _set(
    "tried", 0.82, "of the plain kernel's speed that is expected at least of a kernel whose launches are tried",
    "nothing: the model is off by 9 % in the mean (docs/results/drawn.md), twice that may be",
    "of 27 launches of other libraries that were left alone, six of 1.07 to 1.18 x plain were expected to have 0.92, "
    "three of 1.11 to have 0.78, the others were slower (docs/results/pointers.md)",
)  # fmt: skip
ALONE = _set(
    "alone", 1.16,
    "times as long as expected takes an iteration of a warp group with a tile of its own, where it could be in a team",
    "attention at D=64 with and without teams, S = 1024, 4096, 16384, full and causal (docs/results/attention.md)",
    _NOT_TRIED,
)  # fmt: skip
TEAM_START = _set(
    "team_start", 900.0, "cycles of an SM that a tile of a team takes beside its loop, more than one by itself",
    "the same", _NOT_TRIED,
)  # fmt: skip
HELD_SHARE = _set(
    "held_share", 0.75, "of the late products' time that exponentials must take for a wait to be held behind them",
    "attention, D = 64, 128 and 256 (docs/results)", _NOT_TRIED,
)  # fmt: skip
STARTS_BEHIND = _set(
    "starts_behind", 1.2, "times as long as products and arithmetic that tiles must take to arrive for blocks to start "
    "when the kernel before them has ended",
    "185 products drawn at random, tiles of 64x64 to 128x256 (docs/results/products.md); any number from 1.16 to 1.26 "
    "parts these alike",
    _NOT_TRIED,
)  # fmt: skip
FIXED_REGISTERS = int(_set(
    "fixed_registers", 24, "registers of a consumer's thread for addresses, barriers and loop control",
    "attention, so that the tiles and schedules that ran best fit (docs/cost-model.md)",
    "no drawn kernel that was accepted spilled",
))  # fmt: skip
PACKING = _set(
    "packing", 1.05, "registers that a tile takes over those it fills", "as fixed_registers", "as fixed_registers"
)
ON_THE_WAY = _set(
    "on_the_way", 98304.0, "bytes, in rows of whole lines, on their way to an SM, beside a buffer of each ring that is "
    "read and one that is freed",
    "depths of 2 to 16 and one to three blocks an SM, 14 products drawn at random (docs/results/products.md)",
    "loads that nobody reads come fastest with 131,072 on their way (tma_product.flight_rate); the simulator takes it "
    "that several blocks with as much part, as plain products do (docs/results/machine.md)",
)  # fmt: skip
IN_STEP = _set(
    "in_step", 450.0, "steps of an SM, over those that it makes, that are asked for in step by blocks that part",
    "126 plain products of several blocks an SM, 256 to 12,000 steps of an SM (docs/results/machine.md)",
    "169 plain kernels of seeds 431 to 440, with later waves: a mean error of 5.8 for 6.6 %, the worst 22 for 30",
)  # fmt: skip
STILL_MERGED = _set(
    "still_merged", 0.35, "part that is left at last of what neighbours gain, where blocks of an SM part", "the same",
    "the same",
)  # fmt: skip
STILL_MERGED_WALKING = _set(
    "still_merged_walking", 0.6, "the same, where the blocks walk",
    "29 specialized products of two blocks an SM, seeds 431 to 440: a mean error of 6.5 for 8.3 %", _NOT_TRIED,
)  # fmt: skip
LOADED = _set(
    "loaded", 0.25, "part by which a tile's latency is longer on a card whose way from L2 is busy all the time",
    "plain products of seeds 406 to 408 on an H100, their clock given, in steps of 0.25 (docs/results/drawn.md)",
    "with 0 or 0.55 their mean error is 8.0 and 9.2 % for 7.7; of products on an H200 0.35 and 0.55 had the same",
)  # fmt: skip
FOUND_REST = _set(
    "found_rest", 0.5, "part of the loads of the rest of a line that find it in L2, where the load before is over",
    "plain products A B^T of two stages in tiles 32 deep, seeds 410 (an H100) to 423 (docs/results/drawn.md)",
    "without it they are 9 % too slow in the mean and up to 35, with 1 on an H200 10 % too fast, on an H100 3 too slow",
)  # fmt: skip
AT_ONCE = _set(
    "at_once", 0.75, "part of the blocks that want the same tiles that load at the same moments, where they pause",
    "153 plain products of seeds 439 and 440, in steps of 0.25: 5.3 % for 5.5 with 1, and 5.6 with 0.5",
    "356 of 441 and 442: 6.1 for 6.4 %, the worst 24.8 for 32.5, with the queue of products (docs/results/drawn.md)",
)  # fmt: skip
QUICK = _set(
    "quick", 8.0, "instructions of products, of all warp groups, that are issued at full speed; those right behind "
    "them take twice as long",
    "1 to 32 wgmma of 64 to 256 columns, one and two warp groups, an H200 (docs/results/machine.md)",
    "345 points of seeds 439 and 440: as good in the mean (5.6 %), 6 over 20 % for 8",
)  # fmt: skip
MEETING = _set(
    "meeting", 34.0, "cycles for which the warps of a task meet between its products and its waits, one warp group",
    "two wgmma of 64 columns an iteration with and without bar.sync, an H200 (docs/results/machine.md)",
    "bar.sync by itself takes 20; by that plain products that walk are 3.4 % too fast, by this 0.7 (163 of four seeds)",
)  # fmt: skip
MEETING_MORE = _set(
    "meeting_more", 18.0, "the same, for each warp group more", "the same, of two warp groups",
    "8 by itself; plain products of eight warps that walk are 4.4 % too fast by that, by this 1.1",
)  # fmt: skip
COPY_RATE = _set(
    "copy_rate", 29.0, "bytes a cycle that the threads of one producer copy with cp.async, one block an SM",
    "products through pointers in tiles of 128x256 and 128x128, K of 32 and 64, three sizes (kernels/matmul.py)",
    "two blocks an SM copy 42 together; the gathered rows of kernels/gathered.py need 16 and are not slowed down",
)  # fmt: skip
NAMES_OF_MACHINE = {
    "hand_on_bytes": "twelve products, divided and not; its upper end, so forgoes up to 3 % on short tiles",
    "handed": "four products in tiles of 128x256; not tried on others",
    "wait_ready": "attention's loop at D=128; 50 to 110 in other places of it",
    "setup": "set by hand; decides how tiles are spread where they differ in cost, and constant trip counts",
}
"""Numbers of `[fitted]` of a machine description: what they were fitted to."""
