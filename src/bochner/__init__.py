"""bochner."""
