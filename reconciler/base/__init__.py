"""Errors and reasons, words, escaping and redaction, hints for misspelt names: without any domain."""
