"""Any stochastic bound, maximised: steps, checkpoints, progress."""
