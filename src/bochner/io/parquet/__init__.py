"""Parquet files: their columns, the parts of a table, and their rows."""
