"""Consumer warp groups work on neighbouring tiles and share what they stream (tile coarsening)."""
