"""Consumer warp groups issue their products one after the other (ping-pong)."""
