"""`pr show` on a terminal reads as the pull request does in a browser: no marks, tables as columns."""

from reconciler.report.console import ansi, markdown_lines, plain

BODY = """Brings `web/v2`. **Merging this** needs a look.

### Conflicts

**1.** `spec.x`

| | |
| --- | --- |
| upstream | `a \\| b` |
| local since | `Five` (`Ada`) |

<details>
<summary>The difference</summary>

```diff
-old
+new | a
 `kept`
```

</details>
"""


def test_marks_are_gone_and_what_is_code_stays() -> None:
    assert list(markdown_lines(BODY, 40, plain)) == [
        "Brings web/v2. Merging this needs a",
        "    look.",
        "",
        "Conflicts",
        "",
        "1. spec.x",
        "",
        "upstream     a | b",
        "local since  Five (Ada)",
        "",
        "The difference",
        "",
        "  -old",
        "  +new | a",
        "   `kept`",
        "",
        "",
    ]


def test_differences_and_headings_have_colors() -> None:
    lines = list(markdown_lines(BODY, 40, ansi))

    assert [line for line in lines if "\x1b" in line] == [
        "\x1b[1mConflicts\x1b[0m",
        "\x1b[31m  -old\x1b[0m",
        "\x1b[32m  +new | a\x1b[0m",
    ]
