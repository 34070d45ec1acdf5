"""Tiles divided between two blocks, the second fixing up the first one's sums (stream-K)."""
