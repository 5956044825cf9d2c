"""``roundtrip``: proofs that a restore is right, and controls that must fail."""
