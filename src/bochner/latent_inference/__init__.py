"""Where rows lie in latent space under a fitted model, and how sure that is."""
