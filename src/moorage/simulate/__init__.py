"""Placing without a cloud: the same search, checks and ranking on a cloud that is made up or was dumped."""
