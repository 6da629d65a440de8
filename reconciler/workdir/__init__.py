"""Files of working copies that commands write, and the demo; never part of an apply."""
