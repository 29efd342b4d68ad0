"""The levels of the token hierarchy, highest temporal locality first: context, model, corpus, and recycled logits."""

LEVEL_NAMES = ("context", "model", "corpus", "recycled")
