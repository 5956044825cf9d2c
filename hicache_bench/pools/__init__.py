"""What a KV cache is made of: pools, their bytes, their layout, their keys. Pure."""
