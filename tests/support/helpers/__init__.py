"""What several test modules share; no test imports another test."""
