"""Copies of Gluon under the names they have up to Triton 3.8 and from 3.9 on."""

from __future__ import annotations

from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import tma

load_tile = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
store_tile = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
load_elements = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared
