"""``python -m bochner`` and the command ``bochner``."""

from __future__ import annotations

from bochner.cli import app


def main() -> None:
    """Run the command line."""
    app(prog_name="bochner")


if __name__ == "__main__":
    main()
