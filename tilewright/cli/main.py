"""The `tilewright` command. Exit status: 0 done, 1 the model or the input is at fault, 2 wrong usage."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.cli.output import Output
from tilewright.support.diagnostics import CompileError
from tilewright.version import __version__

__all__ = ["main"]

Command = Callable[[argparse.Namespace, Output], int]


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, eq, dims = text.partition("=")
    try:
        if not eq or not name:
            raise ValueError
        return name, tuple(int(d) for d in dims.replace("x", ",").split(",") if d)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=1,3,224,224") from None


def _input(text: str) -> tuple[str, str]:
    name, eq, source = text.partition("=")
    if not eq or not name or not source:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=file.npy, NAME=file.npz or NAME=random")
    return name, source


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tilewright",
        description="A machine-learning compiler: models in, native code out.",
        epilog="example: tilewright demo",
    )
    parser.add_argument("--version", action="version", version=f"tilewright {__version__}")
    parser.add_argument("--traceback", action="store_true", help="show Python's traceback of an error")
    sub = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, help_: str, example: str, model: str | None = None) -> argparse.ArgumentParser:
        p = sub.add_parser(
            name, help=help_, description=help_[0].upper() + help_[1:] + ".", epilog=f"example: tilewright {example}"
        )
        p.add_argument("--json", action="store_true", help="print one JSON object, for machines")
        p.add_argument(
            "--traceback", action="store_true", default=argparse.SUPPRESS, help="show Python's traceback of an error"
        )
        if model:
            p.add_argument(
                "model",
                metavar=model,
                help="an ONNX file" + (" or a compiled .tw / .so" if "ARTIFACT" in model else ""),
            )
        return p

    def model_options(p: argparse.ArgumentParser) -> None:
        p.add_argument(
            "--shape",
            metavar="NAME=1,3,224,224",
            type=_shape,
            action="append",
            default=[],
            help="fix a dynamic input's shape",
        )
        p.add_argument("--threads", metavar="N", type=_positive, help="threads to run on (default: physical cores)")
        p.add_argument("--target", default="llvm", help='what to compile for (default "llvm": this CPU)')

    p = command("compile", "compile a model to a file", "compile model.onnx -o model.tw --shape x=1,3,224,224", "MODEL")
    model_options(p)
    p.add_argument(
        "-o", "--output", required=True, metavar="OUT", help="OUT.tw (needs no linker), OUT.so, OUT.o or OUT.ll"
    )
    p.add_argument("--dump-ir", metavar="DIR", help="write the program after each pass as numbered script files")

    p = command(
        "run", "run a model or a compiled artifact", "run model.onnx --input x=random -o out.npz", "MODEL_OR_ARTIFACT"
    )
    model_options(p)
    p.add_argument(
        "--input",
        metavar="NAME=file.npy",
        type=_input,
        action="append",
        default=[],
        help="an input: .npy, .npz or random",
    )
    p.add_argument("-o", "--output", metavar="out.npz", help="write the outputs")
    p.add_argument("--check", choices=["onnxruntime"], help="compare with onnxruntime")
    p.add_argument("--seed", type=int, default=0, help="seed of random inputs")

    p = command("bench", "measure a model", "bench model.onnx --against onnxruntime --threads 1", "MODEL")
    model_options(p)
    p.add_argument("--against", choices=["onnxruntime"], help="measure a peer too, interleaved")
    p.add_argument("--seconds", type=float, default=3.0, help="how long to measure (default 3)")
    p.add_argument("--seed", type=int, default=0, help="seed of random inputs")

    p = command("inspect", "say what a model is made of", "inspect model.onnx --shape x=1,3,224,224", "MODEL")
    model_options(p)

    command("targets", "list what can be compiled for", "targets")
    p = command("cache", "show or empty the cache of compiled kernels", "cache info")
    p.add_argument("action", choices=["info", "clear"])
    command("doctor", "say what this installation has and lacks", "doctor")
    p = command("replay", "run a reproducer of an internal error again", "replay tilewright-fuse_ops-x1.py")
    p.add_argument("file", help="the reproducer that an error named")
    p = command("demo", "compile three OCR models and read a page with them", "demo")
    p.add_argument("--image", metavar="FILE", help="a picture of printed text (default: the page that comes along)")
    p.add_argument("--threads", metavar="N", type=_positive, help="threads to run on")
    return parser


def _command(name: str) -> Command:
    from importlib import import_module

    return import_module(f"tilewright.cli.{name}_command").run


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status."""
    args = _parser().parse_args(argv)
    output = Output(as_json=bool(getattr(args, "json", False)))
    try:
        return _command(args.command)(args, output)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        output.error("interrupted")
        return 130
    except (CompileError, OSError, ValueError, TypeError, ImportError, MemoryError) as error:
        return _report(error, args, output)
    except Exception as error:
        notes = "\n".join(getattr(error, "__notes__", []))
        if not args.traceback:
            output.error(f"internal error: {type(error).__name__}: {error}\n{notes}\nhint: --traceback shows where")
            return 1
        raise


def _report(error: BaseException, args: Any, output: Output) -> int:
    if args.traceback:
        raise error
    output.error(error if str(error) else type(error).__name__)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
