"""What the parts of the parser share: the source, its names, and what is open."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from tilewright.script.evaluate import Environment, Evaluator
from tilewright.script.source import Source
from tilewright.script.state import BuildState
from tilewright.script.suite import at, call_function
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as tir

__all__ = ["ParserState"]

R = TypeVar("R")


class ParserState(BuildState):
    """A BuildState with the source and the environment that it is parsed from."""

    def __init__(self, source: Source, env: Environment) -> None:
        super().__init__()
        self.source, self.env = source, env
        self.use(source, env)

    def use(self, source: Source, env: Environment) -> None:
        """Go on with another source and environment: those of a macro."""
        self.source, self.env = source, env
        self.evaluator = Evaluator(source, env)
        self.evaluator.call_hook = lambda f, args, kwargs: call_function(f, args, kwargs, env.returns)
        self.evaluator.acts_on = self
        self.eval = self.evaluator.eval

    def fail(self, code: str, message: str, n: Any, **kw: Any) -> NoReturn:
        """Raise an error that underlines the syntax node."""
        self.source.fail(code, message, n, **kw)

    def placed(self, n: ast.AST, action: Callable[..., R], *args: Any) -> R:
        """The result of the action, whose errors underline the syntax node."""
        try:
            return action(*args)
        except CompileError as e:
            raise self.evaluator.placed(e, n) from e.__cause__
        except (TypeError, ValueError) as e:
            self.fail("TW0108", str(e), n)

    def emit(self, stmt: tir.Stmt, n: ast.AST | None = None) -> None:
        """Append a statement."""
        if stmt.span is None and n is not None:
            at(stmt, self.source.span(n))
        self.suite.stmts.append(stmt)
