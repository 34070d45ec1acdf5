"""As many blocks as fit walk through the tiles (persistent kernel)."""
