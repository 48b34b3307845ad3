"""The parts of `blockwise`: how one block of logits is made, and what its gradient gives."""
