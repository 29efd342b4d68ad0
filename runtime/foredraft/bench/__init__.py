"""Compare drafters on one engine: same questions, interleaved, token ids checked for equality."""
