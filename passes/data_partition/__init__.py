"""Consumer warp groups share a tile by rows (data partition)."""
