"""Commands, options, fields, files and targets that texts for people name, and which of them are not there.

Texts are strings of the code, helps of commands, templates and pages. In strings of the code `{}` stands
where a value is put in. Names in capitals, in angle brackets and values stand for anything.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import click
from pydantic.alias_generators import to_camel

from reconciler.api.annotations import KEYS, PREFIX
from reconciler.cli.schema import NAMES, manifest_schema
from reconciler.read.configuration import variable_name, variable_paths
from tests.support.reference import ROOT, Text, code, commands, options, words

VALUE = "{}"
"""Stands for a value that is put into a text."""
_FENCES = re.compile(r"^(?:> )?```(\w*)[^\n]*\n(.*?)^(?:> )?```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
Schema = Mapping[str, Any]


@cache
def texts_of_code() -> tuple[Text, ...]:
    """Return every sentence and every line of commands in the code, and the helps of commands."""
    helps = [Text(f"--help of {' '.join(name)}", command.help or "") for name, command in commands().items()]
    return (*(text for module in code() for text in module.texts), *helps)


def spans(text: str) -> list[str]:
    """Return the code spans of a text."""
    return _SPAN.findall(_FENCES.sub("", text))


def command_lines(text: str) -> Iterator[str]:
    """Yield what a text tells people to type: spans, blocks of commands, and lines of examples."""
    yield from spans(text)
    blocks = [block for kind, block in _FENCES.findall(text) if kind in {"console", "sh", "yaml"}]
    outside = _FENCES.sub("", text)
    examples = "\n".join(re.findall(r"^ +(reconciler [^\n]*(?:\\\n[^\n]*)*)", outside, re.MULTILINE))
    for block in (*blocks, examples):
        for line in re.sub(r"\\\n(?:> )?", " ", block).splitlines():
            yield re.sub(r"  +[^ -].*$| #.*$", "", line.strip())


# Commands


def wrong_commands(text: str) -> list[str]:
    """Return the commands of a text that click does not take, each with what is wrong."""
    wrong = []
    for line in command_lines(text):
        for part in re.split(r"\||&&|;|\$\(|^\$ ", line):
            if given := _words_of_call(part):
                wrong += [f"`{line}`: {why}"] if (why := _why_wrong(given)) else []
    bare = re.sub(r"`[^`]*`", "", _FENCES.sub("", text))
    for word in re.findall(r"(?:(?:Write|Run|Use) |\")reconciler ([a-z-]+)", bare):
        wrong += [f"reconciler {word}: there is no such command"] if (word,) not in commands() else []
    return wrong


def _words_of_call(line: str) -> list[str]:
    """Return the words after `reconciler` of a line; of a span the words from a command on."""
    try:
        given = shlex.split(line.strip())
    except ValueError:
        given = line.split()
    while given and re.fullmatch(r"[A-Z_]+=.*|\w+:|-|!|if|then|do|exec", given[0]):
        given = given[1:]
    if given[:1] and re.fullmatch(r"(?:\S*/)?reconciler", given[0]):
        return [word.rstrip(")") for word in given[1:]]
    is_ours = (given[0],) in commands() and len(given) > 1 if given else False
    return given if is_ours and (given[1].startswith("--") or tuple(given[:2]) in commands()) else []


def _why_wrong(given: list[str]) -> str:
    every, path, rest = commands(), (), list(given)
    rest = rest[: next((n for n, word in enumerate(rest) if re.match(r"\d?[<>]|#", word)), len(rest))]
    while rest and isinstance(every[path], click.Group) and not rest[0].startswith("-"):
        if (*path, rest[0]) not in every:
            return "" if _stands_for_any(rest[0]) else f"there is no command {' '.join((*path, rest[0]))}"
        path, rest = (*path, rest[0]), rest[1:]
    shown = [word.strip("[],") for word in rest if word.strip("[],") not in {"...", "…", "|", ""}]
    shown = [word for word in shown if word not in options(())]  # of every command
    if isinstance(every[path], click.Group) or VALUE in shown:
        unknown = [word for word in shown if word.startswith("--") and word not in options(path)]
        return f"there is no option {unknown[0]}" if unknown else ""
    return _why_not_parsed(every[path], shown)


def _why_not_parsed(command: click.Command, shown: list[str]) -> str:
    try:
        parsed, more, _ = command.make_parser(click.Context(command)).parse_args(args=[*shown])
    except click.NoSuchOption as error:
        return f"there is no option {error.option_name}"
    except click.BadOptionUsage as error:
        return "" if error.option_name == shown[-1] else error.format_message()  # a sentence names it
    except click.UsageError as error:
        return error.format_message()
    return f"{more[0]} is too much" if more else next(_wrong_values(command, parsed), "")


def _stands_for_any(word: str) -> bool:
    return word.isupper() or VALUE in word or bool(re.match(r"[<…{]|\.\.\.", word))


def _wrong_values(command: click.Command, parsed: Mapping[str, Any]) -> Iterator[str]:
    for parameter in command.params:
        given = parsed.get(parameter.name or "")
        for value in given if isinstance(given, list | tuple) else [given]:
            choices = parameter.type.choices if isinstance(parameter.type, click.Choice) else ()
            is_known = str(value).lower() in {str(choice).lower() for choice in choices}
            if choices and isinstance(value, str) and not is_known and not _stands_for_any(value):
                yield f"{value} is no value of {parameter.opts[0]}"


# Options


def wrong_options(text: str) -> list[str]:
    """Return the options that stand alone in a text, in or outside of spans, and that no command has."""
    alone = [span.partition(" ")[0].partition("=")[0] for span in spans(text) if span.startswith("--")]
    bare = re.sub(r"`[^`]*`", "", _FENCES.sub("", text))
    named = [*alone, *re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", bare)]
    return [f"{name}: no such option" for name in named if name not in _options()]


@cache
def _options() -> set[str]:
    return {name for path in commands() for name in options(path)}


# Annotations, variables and fields


def wrong_names(text: str) -> list[str]:
    """Return the annotations and variables that a text names and nothing reads."""
    marks = re.findall(rf"{re.escape(PREFIX)}[a-z-]*[a-z](?![\w/{{-]|\.\w)", text)
    variables = re.findall(r"\bRECONCILER_[A-Z_]*[A-Z]\b(?![*{…])", text)
    return [
        *(f"{name}: no such annotation" for name in marks if name not in KEYS),
        *(f"{name}: no such variable" for name in variables if name not in _variables()),
    ]


@cache
def _variables() -> set[str]:
    return words(r"RECONCILER_[A-Z_]+") | {variable_name(path) for path in variable_paths()}


def wrong_fields(text: str) -> list[str]:
    """Return the fields that a text names and no manifest has: paths, and words like `maxNew`."""
    paths = re.findall(r"(?<![\w.-])(spec(?:\.[a-zA-Z]+)+)(?![\w({/-])", text)
    settings = [path for span in spans(text) if (path := _setting(span))]
    single = re.findall(r"(?<![\w./{@$-])[a-z]+(?:[A-Z][a-z]+)+(?![\w(/])", text) if "\n" not in text else []
    return [
        *(f"{path}: no such field" for path in (*paths, *settings) if not has_field(path.split("."))),
        *(f"{name}: no such field" for name in single if name not in _field_names()),
    ]


def _setting(span: str) -> str:
    """Return the path of a setting that a span begins with, as in `pullRequests.maxNew: 3`."""
    path = re.match(r"([a-z][A-Za-z]*(?:\.[a-z][A-Za-z]*)+)(?=:? |$)", span)
    policy = _schema("Reconciler")["$defs"]["Policy"]["properties"]
    is_setting = (
        path and path[1].partition(".")[0] in policy and not path[1].endswith((".json", ".sh", ".yaml"))
    )
    return f"spec.{path[1]}" if path and is_setting else ""


def has_field(path: list[str]) -> bool:
    """Tell whether a kind of manifest has the field at a path, items of lists left out."""
    return any(_leads(_schema(kind), _schema(kind), path) for kind in NAMES)


_schema = cache(manifest_schema)


def _leads(root: Schema, schema: Schema, path: list[str]) -> bool:
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    choices = [*schema.get("anyOf", ()), *schema.get("allOf", ())]
    choices += [schema["items"]] if "items" in schema else []
    if not path or any(_leads(root, choice, path) for choice in choices):
        return True
    below = schema.get("properties", {}).get(path[0], schema.get("additionalProperties"))
    return isinstance(below, dict) and _leads(root, below, path[1:])


@cache
def _field_names() -> set[str]:
    """Return the fields of manifests of all projects that the code reads, and their fixed values."""
    ours = [module for module in code() if module.path.startswith("reconciler/api/")]
    read = {to_camel(name) for module in ours for name in module.fields}
    return (
        read | words(r"[a-z]+(?:[A-Z][a-z]+)+") | set().union(*(_names_in(_schema(kind)) for kind in NAMES))
    )


def _names_in(schema: Any) -> set[str]:
    match schema:
        case dict():
            own = {*schema.get("properties", ()), *schema.get("enum", ())}
            return own.union(*map(_names_in, schema.values()))
        case list():
            return set().union(*map(_names_in, schema))
    return set()


# Files and targets

_FILE = re.compile(r"([\w.-]+(?:/[\w.*-]+)+)/?(?:::(\w+))?")
_BARE = re.compile(r"[\w-]+\.(?:py|md)")
_TOPS = frozenset(path.name for path in ROOT.iterdir()) - {".git", ".venv", ".mutation"}


def wrong_files(text: str) -> list[str]:
    """Return the files of the project that the spans of a text name and that are not there.

    A path is one of the project if it begins with one of its directories; parts in capitals stand for
    anything. A file without a directory is a module or a page, which may be anywhere. A test is named with
    its file.
    """
    paths = [match for span in spans(text) if (match := _FILE.fullmatch(span))]
    ours = [
        m for m in paths if m[1].partition("/")[0] in _TOPS and not any(map(str.isupper, m[1].split("/")))
    ]
    bare = [span for span in spans(text) if _BARE.fullmatch(span)]
    return [
        *(f"{match[0]}: no such file" for match in ours if not _exists(match[1], match[2])),
        *(f"{name}: no such file" for name in bare if name not in _file_names()),
        *(f"{span}: of which file?" for span in spans(text) if span.startswith("::")),
    ]


def _exists(path: str, name: str | None) -> bool:
    files = list(ROOT.glob(path))
    return bool(files) and (
        name is None or any(re.search(rf"\b{name}\b", file.read_text()) for file in files)
    )


@cache
def _file_names() -> set[str]:
    tops = [
        path for path in ROOT.iterdir() if path.name in {"docs", "reconciler", "templates", "tests", "tools"}
    ]
    return {file.name for top in tops for file in top.rglob("*.*")} | {path.name for path in ROOT.iterdir()}


def wrong_targets(text: str) -> list[str]:
    """Return the targets of make that a text names and the Makefile has not."""
    lines = [line for line in command_lines(text) if re.match(r"(?:\$ )?make ", line.strip())]
    named = [word for line in lines for word in re.findall(r"\bmake ([a-z][a-z-]*)", line)]
    return [f"make {name}: no such target" for name in named if name not in _targets()]


@cache
def _targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
