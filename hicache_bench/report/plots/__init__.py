"""Records in, PNG and SVG out. Matplotlib is imported only by what draws."""
