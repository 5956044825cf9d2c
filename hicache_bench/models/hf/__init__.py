"""A Hugging Face ``config.json`` as a model: ``importer`` reads it, the others know its parts."""
