"""YAML in: the only reader of preset files."""
