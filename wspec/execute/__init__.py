"""Runs TTGIR on the CPU: values and global memory, tasks, shared memory and barriers; see docs/executor.md."""

from wspec.execute.arguments import Parameter
from wspec.execute.descriptor import Descriptor, describe
from wspec.execute.errors import ExecutionError
from wspec.execute.launch import Kernel, Result, is_known, one_thread, run
from wspec.execute.machine import Limits
from wspec.execute.memory import GlobalMemory
from wspec.execute.replay import ProgramError, Replay, minimize
from wspec.execute.schedule import Delayed, FirstReady, Priorities, Random, Recorded, Schedule, Unfair, adversarial

__all__ = [
    "Delayed",
    "Descriptor",
    "ExecutionError",
    "FirstReady",
    "GlobalMemory",
    "Kernel",
    "Limits",
    "Parameter",
    "Priorities",
    "ProgramError",
    "Random",
    "Recorded",
    "Replay",
    "Result",
    "Schedule",
    "Unfair",
    "adversarial",
    "describe",
    "is_known",
    "minimize",
    "one_thread",
    "run",
]
