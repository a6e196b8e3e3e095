"""Fuzzers: seeded, with the count on the command line."""
