"""Printing of graph IR."""
