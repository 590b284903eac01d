"""Labels from files: a header above one label too few shifts nothing."""

import numpy as np
import pytest

from bochner.errors import InputError
from bochner.page.labels import read_labels


@pytest.mark.parametrize("odd", ["", "platinum", "NA", "silver"])
def test_a_header_above_one_label_too_few_is_refused(tmp_path, odd):
    """Neither a missing label nor a class of one row lets the header be the first row's label."""
    labels = np.random.default_rng(0).choice(["gold", "silver", "bronze"], 39).tolist()
    labels[3] = odd
    path = tmp_path / "labels.csv"
    path.write_text("\n".join(["tier", *(label or '""' for label in labels)]) + "\n")
    with pytest.raises(
        InputError, match="one label for each of the 40 rows, got 39 below 'tier'"
    ):
        read_labels(path, None, 40)
    assert read_labels(path, None, 39)["tier"].tolist() == labels


def test_labels_without_a_header_are_read(tmp_path):
    path = tmp_path / "labels.csv"
    for labels in (
        ["gold", "silver", "gold", "bronze", "silver", "silver"],
        [f"patient {i}" for i in range(6)],
        ["a", "b", "c", "c", "d", "e"],
    ):
        path.write_text("\n".join(labels))
        assert read_labels(path, None, 6)["label"].tolist() == labels
