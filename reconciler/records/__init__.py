"""File formats of records: the state, and the pins of upstreams."""
