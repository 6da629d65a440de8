"""Commands, one file per family: parse, call one function, print, exit."""
