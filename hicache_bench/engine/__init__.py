"""Moving what a plan names, and accounting for it."""
