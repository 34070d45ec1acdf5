"""What the binary holds: registers, spills, instructions, and registers that nobody assigns."""
