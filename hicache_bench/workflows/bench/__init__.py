"""What a real store delivers: samples of saves, lookups and restores, from one process or several."""
