"""Files and containers of other libraries: tables in, tables and tensors out."""
