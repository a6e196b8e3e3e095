"""Statements, under the field's module name."""

from tilewright.tir.ir import *
