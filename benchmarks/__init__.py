"""What this tool itself costs, measured side by side; run by ``make bench``."""
