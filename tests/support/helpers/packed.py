"""What a page unpacks."""

import zlib

import numpy as np


def restore(packed):
    """Return the values a page shows for a packed array, NaN where missing."""
    raw = np.frombuffer(
        zlib.decompress(packed.body), dtype=np.dtype(packed.dtype).newbyteorder("<")
    )
    codes = raw.reshape(packed.shape)
    if packed.low is None or packed.step is None:
        return codes.astype(np.float64)
    missing = 255 if packed.dtype == "uint8" else 65535
    return np.where(codes == missing, np.nan, packed.low + packed.step * codes)
