"""The compiler passes, one a file, named by what they do.

Each takes a module and a plan, changes the module in place, and leaves it valid. They import neither each other nor
triton; what they share lives in `wspec.ir` and `wspec.plan`. `wspec.pipeline` runs them in order.
"""
