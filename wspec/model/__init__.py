"""The model: one machine file, and what an operation costs on it."""
