"""What is true of one kind of GPU, whatever the kernel: limits, sizes of instructions. Rates are in `wspec.model`."""
