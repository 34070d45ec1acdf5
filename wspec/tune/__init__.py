"""tune=N: which plans are timed at a first launch, and whether they can be. `wspec.bridge.tuning` times them."""
