"""``foredraft::TreeAttention``: rotary embedding, cache update in place and attention over a tree of slots."""
