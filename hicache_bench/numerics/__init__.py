"""The arithmetic that proves a restore: float32 references of each attention, over a pool's own bytes."""
