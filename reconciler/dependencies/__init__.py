"""Dependencies of packages: one model for four dialects, one resolver, one lock per cluster."""
