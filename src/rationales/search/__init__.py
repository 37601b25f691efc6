"""Searches: which subset to try next, and the driver that runs many of them at once."""
