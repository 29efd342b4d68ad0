"""An OpenAI-compatible server. Needs the extra ``[serve]``; the bare runtime imports nothing from here.

How a request goes: ``endpoints`` reads and checks it (``json_body``, ``fields``, ``calls``), turns it into one
``Job`` for each answer, and gives these to the ``RequestScheduler``. Its one thread advances every active sequence by
one round in turn, and takes sequences from a ``PrefixCache``, which remembers the texts of finished ones. What a round
wrote comes back to the event loop through an ``Inbox`` and is put into OpenAI's words by ``answers``.
"""
