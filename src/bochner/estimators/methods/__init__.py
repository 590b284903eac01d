"""What the estimators do with rows, as mixins of their base."""
