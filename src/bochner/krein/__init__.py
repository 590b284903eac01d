"""Random features of indefinite kernels: spectra with signs."""
