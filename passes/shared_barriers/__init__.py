"""Barrier sharing: the tiles that one product reads arrive at one barrier."""
