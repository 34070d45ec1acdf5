"""A tile is finished and stored beside the next one's first product (epilogue overlap)."""
