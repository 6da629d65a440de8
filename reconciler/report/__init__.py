"""Plan and Outcome as text, markdown, json, sarif, html; deciding nothing."""
