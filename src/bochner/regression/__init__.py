"""Random-feature regression of one view: statistics, evidence and their gradients."""
