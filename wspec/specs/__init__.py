"""Kernels in files, and what they are compiled for: signatures, and specs with named variants."""
