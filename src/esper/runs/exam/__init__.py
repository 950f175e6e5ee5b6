"""Is the learned controller really better? Every policy on the same held-out seeds, with intervals."""
