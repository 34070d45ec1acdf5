"""Hopper (sm_90): limits and sizes that the compiler keeps to.

From the CUDA programming guide (compute capability 9.0) and the PTX ISA, unless a line says that it was seen.
"""

from __future__ import annotations

BACKEND, ARCH, ARCH_NAME = "cuda", 90, "sm90"  # as Triton names the target

# Threads
WARP_THREADS = 32
WARP_GROUP = 4  # warps that issue wgmma together and share a register budget
BLOCK_THREADS = 1024  # at most

# Shared memory
BLOCK_SHARED_BYTES = 232448  # of one block: 228 KiB of the SM less what the hardware keeps
RESERVED_SHARED_BYTES = 1024  # of each block on an SM, for the hardware
BARRIER_BYTES = 8  # of an mbarrier

# Registers
SM_REGISTERS = 65536
LEAST_REGISTERS = 24  # that setmaxnreg takes
START_REGISTERS = 248  # of a thread at launch, at most: the largest multiple of 8, as setmaxnreg takes, below 255
CONSUMER_REGISTERS = 240  # the most a consumer gets: 240, 240 and 24 make two of them and a producer's group fit
WGMMA_OVERHEAD_REGISTERS = 26  # beside its accumulators, what ptxas 12.8 asks for at launch (seen)

# Tensor core (wgmma)
WGMMA_ROWS = 64  # of the tile of a warp group
WARP_ROWS = 16  # of them that a warp holds

# Copies
TMA_ROW_BYTES = 128  # of a box, at most, with the swizzle that wgmma reads
CP_ASYNC_BYTES = (4, 16)  # that a thread moves with one cp.async: at least, at most
