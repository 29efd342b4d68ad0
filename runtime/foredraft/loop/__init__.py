"""One round after another: an arena of slots, a draft tree, a chain of engines, exits, what is accepted."""
