"""What a fitted model says about data: decodings, completions, densities, calibration."""
