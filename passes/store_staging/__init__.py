"""Where a store's tile is staged; epilogue subtiling with a delayed last subtile."""
