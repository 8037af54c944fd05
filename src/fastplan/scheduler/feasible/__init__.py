"""Whether a node may be used at all (schedulers 8)."""
