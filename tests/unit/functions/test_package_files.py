"""Files of a package that `.krmignore` hides, by the rules of Git."""

import pytest

from reconciler.functions.resources import (
    ignored_paths,
    package_directories,
    package_of,
    read_resources,
    write_resources,
)
from reconciler.names.objects import File

PATHS = ("b.yaml", "a/b.yaml", "a/c.txt", "c/a/b.yaml", "a/d/e.yaml")


@pytest.mark.parametrize(
    ("reason", "patterns", "ignored"),
    [
        ("a name anywhere", "b.yaml", {"b.yaml", "a/b.yaml", "c/a/b.yaml"}),
        ("a path from the root", "/a", {"a/b.yaml", "a/c.txt", "a/d/e.yaml"}),
        ("a directory at any depth", "a/", {"a/b.yaml", "a/c.txt", "c/a/b.yaml", "a/d/e.yaml"}),
        ("a directory pattern hides no file", "b.yaml/", set()),
        ("a star matches no slash", "a/*.yaml", {"a/b.yaml"}),
        ("two stars match every depth", "a/**/*.yaml", {"a/b.yaml", "a/d/e.yaml"}),
        ("comments and empty lines", "# b.yaml\n\n", set()),
        ("the last match wins", "*.yaml\n!b.yaml\n", {"a/d/e.yaml"}),
        ("nothing in an ignored directory returns", "a/\n!a/b.yaml\n!c/a/\n",
            {*PATHS} - {"b.yaml", "c/a/b.yaml"}),
        ("the content of a directory may return", "a/**\n!a/b.yaml\n", {"a/c.txt", "a/d/e.yaml"}),
        ("invalid lines are skipped", "[b-a]\n!\n[\na/c.txt\n", {"a/c.txt"}),
    ],
)  # fmt: skip
def test_ignored_paths_follow_git(reason: str, patterns: str, ignored: set[str]) -> None:
    files = {path: File.of(b"") for path in PATHS}

    assert ignored_paths({**files, ".krmignore": File.of(patterns.encode())}) == ignored, reason


def test_file_is_of_the_innermost_directory_with_a_kptfile() -> None:
    packages = package_directories(["a/b/Kptfile", "Kptfile.d/x", "c/Kptfile"])

    assert packages == {"", "a/b", "c"}
    assert [package_of(path, packages) for path in ("a/x", "a/b/x", "a/b/c/x", "c/Kptfile")] == [
        *("", "a/b", "a/b", "c")
    ]


CONFIG = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {}\n"
TEXTS = {
    "one.yaml": CONFIG.format("one"),
    "two.yaml": CONFIG.format("two") + "---\n" + CONFIG.format("three"),
    "note.yaml": "# why\n",
    "mixed.yaml": CONFIG.format("four") + "---\nreplicas: 1\n",
    "sub/values.yaml": "replicas: 1\n",
    "notes.txt": "why\n",
}


def test_files_of_resources_alone_go_with_them_and_the_others_stay() -> None:
    package = read_resources({path: File.of(text.encode()) for path, text in TEXTS.items()})

    files = write_resources(package, [])

    assert package.lasting_paths == files.keys() == TEXTS.keys() - {"one.yaml", "two.yaml"}
    assert files["mixed.yaml"].data == b"replicas: 1\n"


def test_resource_is_written_where_it_is_now() -> None:
    package = read_resources({path: File.of(text.encode()) for path, text in TEXTS.items()})
    resources = {resource.name: resource.copy() for resource in package.resources[""]}
    resources["one"].path, resources["two"].path = "two.yaml", "new.yaml"

    files = write_resources(package, resources.values())

    assert {path: file.data.decode() for path, file in files.items()} == {
        **{path: text for path, text in TEXTS.items() if path != "one.yaml"},
        "two.yaml": CONFIG.format("three") + "---\n" + CONFIG.format("one"),
        "new.yaml": CONFIG.format("two"),
    }
