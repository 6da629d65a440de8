"""KRM functions: pipeline semantics, catalog, builtins, the runtime port."""
