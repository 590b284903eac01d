"""From data and a plan to a fitted model."""
