import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bochner.errors import InputError
from bochner.memory import chunks


@given(st.integers(0, 200), st.integers(1, 250))
def test_chunks_cover_the_rows_in_order(n_rows, chunk_rows):
    rows = np.arange(n_rows)
    parts = [rows[part] for part in chunks(n_rows, chunk_rows)]
    assert np.concatenate([rows[:0], *parts]).tolist() == rows.tolist()
    assert all(len(part) == chunk_rows for part in parts[:-1])


def test_wrong_sizes():
    with pytest.raises(InputError, match="chunk_rows of at least 1, got 0"):
        next(chunks(5, 0))
