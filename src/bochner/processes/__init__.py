"""Processes: several of one fit, and one in a program that sets things for all of torch."""

from bochner.processes.group import (
    ALONE,
    Alone,
    Joined,
    Processes,
    current,
    distributed,
    in_all_rows,
    local_part,
)
from bochner.processes.watch import Watch

__all__ = [
    "ALONE",
    "Alone",
    "Joined",
    "Processes",
    "Watch",
    "current",
    "distributed",
    "in_all_rows",
    "local_part",
]
