"""Tables with columns of text: read whole, or block by block."""
