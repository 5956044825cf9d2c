"""Storage paths: bytes to seconds. Pure."""
