"""Request traces, and what a tier of bounded capacity makes of them."""
