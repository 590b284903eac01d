"""The posterior of the weights given latents and draws of the spectra."""
