"""``python -m bochner`` and the command ``bochner``."""

from __future__ import annotations

from bochner.cli import app
from bochner.cli.session import standard_output


def main() -> None:
    """Run the command line."""
    with standard_output():
        app(prog_name="bochner")


if __name__ == "__main__":
    main()
