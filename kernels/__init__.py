"""Plain Triton kernels, unspecialized, each with its torch-facing function and its reference."""
