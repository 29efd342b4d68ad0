"""How much to draft and where to verify: policies, what forwards cost, what exits are worth. Never what the text is."""
