"""CODEOWNERS: whose a path is, as GitHub and GitLab document it."""

import pytest

from reconciler.plan.requests import find_code_owners

# After the examples of GitHub's documentation.
GITHUB = """\
# a comment
*       @global-owner1 @global-owner2
*.js    @js-owner #This is an inline comment.
*.go    docs@example.com
*.txt   @octo-org/octocats
/build/logs/ @doctocat
docs/*  @docs-owner
apps/ @octocat
/docs/ @doctocat2
/scripts/ @doctocat @octocat
**/logs @log-owner
/apps/github
my\\ files/ @spaces
!not.md @never
[ab].md @never
"""
# After the examples of GitLab's documentation.
GITLAB = """\
* @default

[Documentation] @docs-team
docs/
README.md @readme

^[Database][2] @database-team
model/db/
config/db/database-setup.md @docs-team/sub
"""


@pytest.mark.parametrize(
    ("text", "path", "owners"),
    [
        ("", "web/Kptfile", ()),
        (GITHUB, "web/Kptfile", ("global-owner1", "global-owner2")),
        (GITHUB, "web/a.js", ("js-owner",)),
        (GITHUB, "web/a.go", ()),
        (GITHUB, "a.txt", ("octo-org/octocats",)),
        (GITHUB, "build/logs/x/y", ("log-owner",)),
        (GITHUB, "x/build/logs.z", ("global-owner1", "global-owner2")),
        (GITHUB, "docs/getting-started.md", ("doctocat2",)),
        (GITHUB, "docs/build-app/troubleshooting.md", ("doctocat2",)),
        (GITHUB, "x/apps/y", ("octocat",)),
        (GITHUB, "apps/y", ("octocat",)),
        (GITHUB, "apps/github/y", ()),
        (GITHUB, "x/apps/github", ("octocat",)),
        (GITHUB, "deep/down/logs/x", ("log-owner",)),
        (GITHUB, "my files/x", ("spaces",)),
        (GITHUB, "not.md", ("global-owner1", "global-owner2")),
        (GITHUB, "a.md", ("global-owner1", "global-owner2")),
        ("docs/* @only-files\n", "docs/a", ("only-files",)),
        ("docs/* @only-files\n", "docs/a/b", ()),
        ("a?c @one\n", "abc", ("one",)),
        ("a?c @one\n", "a/c", ()),
        ("a/**/z @deep\n", "a/z", ("deep",)),
        ("a/**/z @deep\n", "a/b/c/z", ("deep",)),
        (GITLAB, "web/Kptfile", ("default",)),
        (GITLAB, "docs/x", ("default", "docs-team")),
        (GITLAB, "README.md", ("default", "readme")),
        (GITLAB, "model/db/x", ("database-team", "default")),
        (GITLAB, "config/db/database-setup.md", ("default", "docs-team/sub")),
    ],
)
def test_last_matching_pattern_of_each_section_decides(text: str, path: str, owners: tuple[str, ...]) -> None:
    assert find_code_owners(text, path) == owners
