"""An exported model beside the torch reference: same logits, within limits that are known."""
