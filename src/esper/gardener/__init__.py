"""Growth in somebody else's training loop."""
