"""Modelled time: bytes of a plan and cited constants in, seconds out. Pure."""
