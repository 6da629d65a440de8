"""What a package needs: one model for four dialects, one resolver, one lock."""
