"""The brain: the network over slots and blueprints, and the policies that play in the environment."""
