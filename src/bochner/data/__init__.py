"""Views of the data: column groups, checks, scaling, row chunks and files."""
