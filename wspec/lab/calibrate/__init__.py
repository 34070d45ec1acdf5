"""Measuring a GPU for the latency model: microbenchmarks in PTX, launched through the CUDA driver.

A *topic* is a file: its kernels, what it measures, and how samples come of the kernels' clocks. Topics run one after
the other in processes of their own, so that one that hangs or faults costs its own numbers alone. What comes of it is a
machine description, `wspec/plan/NAME.toml`, with a median and a spread for every number.
"""
