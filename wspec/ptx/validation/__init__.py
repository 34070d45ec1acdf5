"""Is edited PTX as good as the PTX that it was made of? Shown on the two texts, without knowing who edited and why."""
