"""What the parameters of an estimator ask for, checked and resolved."""
