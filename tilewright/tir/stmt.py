"""Statements, under the field's module name."""

from tilewright.tir.ir import *
from tilewright.tir.ir import SeqStmt, Stmt
from tilewright.tir.ir import seq as stmt_seq


def stmt_list(stmt: Stmt) -> list[Stmt]:
    """The statements of a sequence, nested ones too; a lone statement is a list of one."""
    if isinstance(stmt, SeqStmt):
        return [x for s in stmt.seq for x in stmt_list(s)]
    return [stmt]
