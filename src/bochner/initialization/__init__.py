"""Where training starts: embeddings, kernels and noise to match."""
