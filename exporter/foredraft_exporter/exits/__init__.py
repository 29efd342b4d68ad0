"""Everything about early exits that happens before the runtime: adapters (fitted or imported) and the draft head.

* adapters.py: an adapter's numbers and its file
* fingerprint.py: which model a file belongs to
* lens.py: tuned-lens translators as adapters
* draft_vocabulary.py: which tokens an exit may draft
* additions.py: what of all this an export writes
* texts.py, source.py: text to fit on, and the model's hidden states on it
* ridge.py: the closed form
* correction.py: the trained part (torch)
* agreement.py: how often an exit is right
* verdict.py: whether that pays
* fit.py, report.py, command.py: ``foredraft exits fit``
"""
