"""Decides: asks the rooms of `passes` in order and builds the plan."""
