"""Numbers with their nouns, as every text writes them."""

_VOWELS = "aeiou"


def plural(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1: `1 repository`, `2 repositories`."""
    if number == 1:
        return f"{number} {noun}"
    if noun.endswith("y") and noun[-2] not in _VOWELS:
        return f"{number} {noun[:-1]}ies"
    return f"{number} {noun}s"


def verb(number: int, singular: str, otherwise: str) -> str:
    """Return the form of a verb for a number of things: `is` or `are`."""
    return singular if number == 1 else otherwise
