"""Buffers, under the field's module name."""

from tilewright.tir.ir import Buffer, DataProducer, decl_buffer
