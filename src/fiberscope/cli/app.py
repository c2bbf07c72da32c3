"""The command ``fiberscope`` and what all its subcommands share: consoles, errors, exit codes."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import cleandoc, signature
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

import fiberscope as fs
from fiberscope.cli.canon import canon
from fiberscope.cli.checkpoints import align, apply, barrier, merge
from fiberscope.cli.compile import compile_kernels
from fiberscope.cli.diff import diff
from fiberscope.cli.dimension import dimension_command
from fiberscope.cli.distance import distance, theory
from fiberscope.cli.equal import equal, vnncomp
from fiberscope.cli.explore import explore
from fiberscope.cli.fiber import fiber
from fiberscope.cli.inspect import inspect
from fiberscope.cli.model_options import loader
from fiberscope.cli.recover import recover
from fiberscope.cli.regions.command import regions
from fiberscope.cli.report import report
from fiberscope.cli.reproduce import reproduce
from fiberscope.cli.simplify import simplify
from fiberscope.cli.tour.command import tour
from fiberscope.cli.verify import verify
from fiberscope.errors import FiberscopeError, InputError, OutOfTimeError

BAD_INPUT, UNDECIDED, UNFORESEEN, INTERRUPTED = 2, 3, 70, 130
"""Exit codes of failures; 3 where the time is up, 70 is EX_SOFTWARE of sysexits.h, 130 what shells give for Ctrl-C."""

UsageError: Any = typer.BadParameter.__base__
"""What typer raises for a command that is put wrongly; it has no public name."""


class Commands(TyperGroup):
    """A command that is put wrongly (an unknown option, a number out of range) is bad input like any other: one line.

    Typer would draw a frame around it. A command without its arguments shows its help.
    """

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _usage_in_one_line():
            return super().make_context(*arguments, **options)

    def invoke(self, context: Any) -> Any:
        with _usage_in_one_line():
            return super().invoke(context)


@contextmanager
def _usage_in_one_line() -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        text = error.format_message().strip().removesuffix(".")
        if not text or type(error).__name__ == "NoArgsIsHelpError":
            raise
        command = "fiberscope" if error.ctx is None else error.ctx.command_path
        raise InputError(f"{text}; see {command} --help") from error


app = typer.Typer(
    cls=Commands,
    name="fiberscope",
    help="Look into the fibers of neural networks: exact answers with evidence.",
    epilog="Exit codes: 0 yes or done, 1 no, 2 bad input (or a full disk), 3 undecided, 70 an unforeseen failure, 130 "
    "interrupted.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _whole(command: Callable[..., None]) -> Callable[..., None]:
    """A command with its own options and, if it has a parameter ``load``, those of models: it gets a loader for it."""
    told = signature(command, eval_str=True)
    if "load" not in told.parameters:
        return command
    own = [p.replace(kind=p.KEYWORD_ONLY) for name, p in told.parameters.items() if name != "load"]
    extra = [p.replace(kind=p.KEYWORD_ONLY) for p in signature(loader, eval_str=True).parameters.values()]

    def run(**given: Any) -> None:
        options = {parameter.name: given.pop(parameter.name) for parameter in extra}
        command(**given, load=loader(**options))

    run.__name__ = command.__name__
    parameters = [*own, *extra]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = told.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


COMMANDS: dict[str, Callable[..., None]] = {
    "inspect": inspect,
    "regions": regions,
    "distance": distance,
    "theory": theory,
    "dimension": dimension_command,
    "equal": equal,
    "diff": diff,
    "verify": verify,
    "vnncomp": vnncomp,
    "simplify": simplify,
    "canon": canon,
    "fiber": fiber,
    "recover": recover,
    "align": align,
    "apply": apply,
    "barrier": barrier,
    "merge": merge,
    "report": report,
    "explore": explore,
    "reproduce": reproduce,
    "tour": tour,
    "compile": compile_kernels,
}
"""By name, in the order of the help."""


def _flowing(text: str) -> str:
    """A docstring whose paragraphs have one line each, so that a terminal of any width breaks them; examples stay.

    >>> _flowing("What it does.\\n\\nExamples:\\n\\n  fiberscope tour\\n\\nExit code 1\\nfor no.")
    'What it does.\\n\\nExamples:\\n\\n  fiberscope tour\\n\\nExit code 1 for no.'
    """
    blocks = cleandoc(text).split("\n\n")
    return "\n\n".join(block if block.startswith(" ") else " ".join(block.split()) for block in blocks)


for _name, _command in COMMANDS.items():
    asks = _command not in (explore, reproduce, tour, compile_kernels)
    app.command(_name, help=_flowing(_command.__doc__ or ""), no_args_is_help=asks)(_whole(_command))


def _print_version(wanted: bool) -> None:
    if wanted:
        print(fs.__version__)
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_print_version)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of a failure; may stand anywhere in the command.")
    ] = False,
) -> None:
    """What comes before the subcommand."""


def main() -> None:
    """Run the command line. A failure is one line on standard error, and the traceback before it with ``--debug``.

    A time limit that ended the work before there was an answer leaves it undecided: exit code 3. What has a name, and
    what the machine refuses (a full disk, a folder that may not be written), ends with exit code 2; anything else is a
    defect of ours and ends with 70.
    """
    arguments, debug = _without_debug(sys.argv[1:])
    try:
        app(args=arguments)
    except SystemExit as stop:
        if stop.code == INTERRUPTED:  # typer turns Ctrl-C into this, without a word
            _fail("interrupted", INTERRUPTED, debug)
        raise
    except KeyboardInterrupt:
        _fail("interrupted", INTERRUPTED, debug)
    except OutOfTimeError as error:
        _fail(f"undecided: {_plain(error)}", UNDECIDED, debug)
    except FiberscopeError as error:
        _fail(f"[bold red]error:[/] {_plain(error)}", BAD_INPUT, debug)
    except (OSError, MemoryError) as error:
        _fail(f"[bold red]error:[/] {_refusal(error)}", BAD_INPUT, debug)
    except Exception as error:
        _fail(f"[bold red]error:[/] {_report(error, debug)}", UNFORESEEN, debug)


def _without_debug(arguments: Sequence[str]) -> tuple[list[str], bool]:
    """The arguments without ``--debug``, wherever it stands before a ``--``, and whether it was there."""
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    kept = [text for text in arguments[:end] if text != "--debug"]
    return [*kept, *arguments[end:]], len(kept) < end


def _fail(text: str, code: int, debug: bool) -> None:
    """One line, and out; called while the exception is handled."""
    if debug:
        traceback.print_exc()
    Console(stderr=True, highlight=False, soft_wrap=True).print(text)
    sys.exit(code)


def _plain(error: Exception) -> str:
    return " ".join(str(error).split()).replace("[", r"\[")


def _refusal(error: OSError | MemoryError) -> str:
    """What the machine refused."""
    if isinstance(error, MemoryError):
        return f"not enough memory ({_plain(error) or 'the machine gave no number'})"
    where = "" if error.filename is None else f"{error.filename}: ".replace("[", r"\[")
    return f"{where}{error.strerror or _plain(error) or type(error).__name__}"


def _report(error: Exception, debug: bool) -> str:
    what = f"unforeseen {type(error).__name__}: {_plain(error) or 'without a message'}"
    how = "the traceback above" if debug else "what it prints with --debug"
    return f"{what}; this is a defect of fiberscope {fs.__version__}, please report the command and {how}"
