"""Signals at any time of a fit."""

from campaign.writes import interrupt as trial

__all__ = ["trial"]
