"""The command line: ``noisewise --help`` lists the commands."""

from noisewise.errors import MissingExtraError

try:
    import typer  # noqa: F401
except ImportError as error:
    raise SystemExit(str(MissingExtraError("The command line", "cli"))) from error

from noisewise.cli.app import app, main

__all__ = ["app", "main"]
