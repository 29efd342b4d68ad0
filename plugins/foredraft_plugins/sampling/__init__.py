"""Which tokens can win the race of Gumbel-max sampling: the loops over a vocabulary, beside ``foredraft.sampling``."""
