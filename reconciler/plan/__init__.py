"""Compare what should be with what is, and plan every effect."""
