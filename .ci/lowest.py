"""Print the lowest versions that pyproject.toml declares, as constraints of pip: `make lowest`."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
# The suite runs on the pinned torch: builds of old versions are not for every Python and machine.
PINNED = {"torch"}
EXTRAS = ("pandas", "parquet", "anndata", "plot")


def lowest() -> list[str]:
    """Return lines such as "numpy==2.0"; of a package that is named twice, the higher bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *(line for name in EXTRAS for line in extras[name])]
    bounds: dict[str, str] = {}
    for line in declared:
        match = re.match(r"([\w-]+)>=([\d.]+)", line)
        if match and match[1] not in PINNED:
            old = bounds.get(match[1], "0")
            bounds[match[1]] = max(old, match[2], key=lambda v: [int(i) for i in v.split(".")])
    return [f"{name}=={version}" for name, version in sorted(bounds.items())]


if __name__ == "__main__":
    print("\n".join(lowest()))
