"""Tiles that are bits of a byte, computed several bytes at a time (packed dequantization)."""
