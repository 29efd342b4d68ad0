"""Where models come from: a folder, a GGUF, a hub or the catalog, read as one kind of checkpoint."""
