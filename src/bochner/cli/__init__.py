"""The command line: what a shell says, in the words of the estimators."""

from bochner.cli.main import app

__all__ = ["app"]
