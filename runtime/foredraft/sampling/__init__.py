"""From a row of logits to the next token: filters, noise, the race between tokens."""
