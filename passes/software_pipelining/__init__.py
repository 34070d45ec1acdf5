"""Order inside a task: pipeline stages, prologue, epilogue, and asynchronous products."""
