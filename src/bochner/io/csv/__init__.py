"""Tables of text: decoding, headers, cells, and writing them."""
