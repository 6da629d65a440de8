"""Packages, installs and the inputs of one cluster: plain values that know no file format."""
