"""How a command ends that could not do what it was asked."""

from collections.abc import Callable
from typing import Any

import typer

from moorage.core.errors import MoorageError


def failing(action: Callable[[], Any]) -> Any:
    """Run; a known failure becomes one line and exit status 1."""
    try:
        return action()
    except MoorageError as error:
        typer.echo(f"moorage: {error.message}", err=True)
        raise typer.Exit(1) from error
