"""Scorers: the log-probability of a target given a kept subset of its context."""
