"""What must move, what is skipped, and why. Pure."""
