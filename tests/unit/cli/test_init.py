"""`init` writes a configuration that is right as it is, and right with every comment removed."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from reconciler.cli.init import CONFIGURATION, init
from reconciler.config import parse_configuration
from reconciler.errors import RefusedError, UsageError
from reconciler.policy import CredentialRule, Policy


def run(*arguments: str) -> None:
    CliRunner().invoke(init, arguments, catch_exceptions=False, standalone_mode=False)


def test_the_first_configuration_is_valid_and_chooses_the_defaults(tmp_path: Path) -> None:
    run(str(tmp_path / "My Fleet"))

    data = (tmp_path / "My Fleet" / "reconciler.yaml").read_bytes()
    assert parse_configuration(data, "reconciler.yaml", {}) == Policy(
        instance="my-fleet", manifests=("manifests",)
    )
    assert (tmp_path / "My Fleet" / "manifests").is_dir()
    assert (tmp_path / "My Fleet" / "snapshot").is_dir()


def test_what_the_comments_show_is_the_default() -> None:
    text = CONFIGURATION.substitute(instance="fleet")
    shown = re.sub(r"^( *)# ((?:- |  )*[a-zA-Z]+:(?: .*)?)$", r"\1\2", text, flags=re.MULTILINE)

    assert shown.count("#") < text.count("#")
    assert parse_configuration(shown.encode(), "reconciler.yaml", {}) == Policy(
        instance="fleet",
        manifests=("manifests",),
        credentials=(CredentialRule("https://git.example.com/", token_env="GIT_TOKEN"),),
    )


@pytest.mark.parametrize("there", ["reconciler.yaml", "manifests/README.md"])
def test_nothing_is_overwritten(tmp_path: Path, there: str) -> None:
    (tmp_path / there).parent.mkdir(exist_ok=True)
    (tmp_path / there).write_text("mine")

    with pytest.raises(RefusedError) as caught:
        run(str(tmp_path))

    assert there in str(caught.value)
    assert (tmp_path / there).read_text() == "mine"
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [tmp_path / there]


def test_the_name_can_be_given_but_must_be_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        run(str(tmp_path), "--instance", "A/B")
    assert list(tmp_path.iterdir()) == []

    run(str(tmp_path), "--instance", "east")
    assert "name: east" in (tmp_path / "reconciler.yaml").read_text()
