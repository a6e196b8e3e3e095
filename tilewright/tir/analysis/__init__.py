"""Analyses of the loop IR."""

from tilewright.tir.analysis.regions import RegionUnion
