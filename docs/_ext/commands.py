"""The directive ``noisewise-commands``: every command with its options, as the program has them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import typer
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from noisewise.cli import app


def commands() -> Iterator[tuple[str, Any]]:
    """Names and commands of noisewise itself, groups opened."""
    root = typer.main.get_command(app)
    for name, command in root.commands.items():
        inside = getattr(command, "commands", None)
        if inside is None:
            yield f"noisewise {name}", command
        else:
            yield from ((f"noisewise {name} {word}", one) for word, one in inside.items())


def page() -> str:
    """Return the whole reference as Markdown."""
    return "\n\n".join(section(name, command) for name, command in commands())


def section(name: str, command: Any) -> str:
    """One command: what it does, its arguments, its options and an example."""
    words, _, example = command.help.partition("Example:")
    parts = [f"## {name}", in_lines(words)]
    if example:
        parts.append(f"```bash\n{example.strip().strip('`')}\n```")
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [
        one for one in command.params if one.param_type_name == "option" and one.name != "help"
    ]
    if arguments:
        parts.append(table("Argument", [(f"`{shown(one)}`", described(one)) for one in arguments]))
    if options:
        parts.append(table("Option", [(f"`{shown(one)}`", described(one)) for one in options]))
    return "\n\n".join(parts)


def shown(parameter: Any) -> str:
    """How a parameter is typed."""
    if parameter.param_type_name == "argument":
        return (parameter.metavar or parameter.name.upper()) + (
            "..." if parameter.nargs == -1 else ""
        )
    names = ", ".join(parameter.opts + parameter.secondary_opts)
    return names if parameter.is_flag else f"{names} {_kind(parameter)}"


def _kind(parameter: Any) -> str:
    """Return what an option takes, as `--help` has it."""
    told = getattr(parameter, "type_descriptor", None)
    if parameter.metavar:
        return str(parameter.metavar)
    if told is None:
        return str(parameter.type.name).upper()
    kinds = {Path: "PATH", int: "INTEGER", float: "FLOAT"}
    return kinds.get(
        get_args(told.annotation)[0] if parameter.multiple else told.annotation, "TEXT"
    )


def described(parameter: Any) -> str:
    """Say what a parameter is for, its default, and whether it must be there."""
    words = in_lines(parameter.help or "")
    default = getattr(parameter, "show_default", None)
    default = default if isinstance(default, str) else parameter.default
    if parameter.required:
        words += " *Required.*"
    elif parameter.param_type_name == "option" and not parameter.is_flag and _told(default):
        words += f" *Default: `{default}`.*"
    if parameter.multiple:
        words += " *May be given more than once.*"
    return words.strip()


def _told(default: Any) -> bool:
    return default is not None and default not in ((), [], "") and not callable(default)


def in_lines(text: str) -> str:
    """Text of a help page as one paragraph for each of its own."""
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()))


def table(kind: str, rows: list[tuple[str, str]]) -> str:
    """Write a table of two columns in Markdown."""
    lines = [f"| {kind} | |", "|---|---|"]
    for row in rows:
        cells = (cell.replace("|", "\\|").replace("\n", " ") for cell in row)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


class Commands(SphinxDirective):
    """Puts the reference where the directive stands."""

    def run(self) -> list[nodes.Node]:
        """Parse the Markdown as if it stood in the page."""
        lines = StringList(page().splitlines(), source="noisewise --help")
        node = nodes.section()
        node.document = self.state.document
        self.state.nested_parse(lines, self.content_offset, node, match_titles=True)
        return node.children


def setup(app: Any) -> dict[str, bool]:
    """Make it known to Sphinx."""
    app.add_directive("noisewise-commands", Commands)
    return {"parallel_read_safe": True}
