"""Git: mirrors, packs, pushes with leases, Porch's layout of refs."""
