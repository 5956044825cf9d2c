"""Which layers a model has, and how an engine pools them. Pure."""
