"""Source code as tokens, their syntax tree and the relations between them: Python, and languages with a grammar."""
