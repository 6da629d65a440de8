"""What is wrong with a YAML or JSON text, and where."""


class YamlError(ValueError):
    """A text that is not acceptable YAML or JSON: a fact about one file, to be reported as a Problem.

    `line` and `column` count from 1; 0 is unknown. `message` is one sentence without a
    trailing stop; `hint` says what to do about it and may be empty.
    """

    def __init__(self, message: str, *, line: int = 0, column: int = 0, hint: str = "") -> None:
        where = f"line {line}, column {column}: " if line else ""
        super().__init__(f"{where}{message}")
        self.message = message
        self.line = line
        self.column = column
        self.hint = hint
