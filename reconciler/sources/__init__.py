"""The only readers of registries: no plan, lock or apply imports this folder (D29)."""
