"""People of a pull request: by rules, and by CODEOWNERS as GitHub and GitLab document it."""

import pytest

from reconciler.names.ids import ObjectName
from reconciler.plan.requests import People, find_code_owners, find_people
from reconciler.policy import Policy, PullRequestPolicy, ReviewRule
from tests.support.plan_values import KEPT, WEB, a_desired, a_target, web_context
from tests.support.sets import repository
from tests.support.values import replace

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


OF_SET = replace(a_desired(), set_key=ObjectName("default", "fleet"))


@pytest.mark.parametrize(
    ("rule", "variant", "is_asked"),
    [
        pytest.param({}, OF_SET, True, id="an empty rule"),
        pytest.param({"sets": ("fle*",)}, OF_SET, True, id="its set"),
        pytest.param({"sets": ("web",)}, OF_SET, False, id="another set"),
        pytest.param({"sets": ("*",)}, a_desired(), False, id="a set, where it is of none"),
        pytest.param({"repositories": ("ed?e",)}, OF_SET, True, id="its Repository"),
        pytest.param({"repositories": ("east", "west")}, OF_SET, False, id="another Repository"),
        pytest.param({"selector": {"matchLabels": {"tier": "prod"}}}, OF_SET, True, id="its labels"),
        pytest.param({"selector": {"matchLabels": {"tier": "dev"}}}, OF_SET, False, id="other labels"),
        pytest.param({"sets": ("fleet",), "repositories": ("west",)}, OF_SET, False, id="all must match"),
    ],
)
def test_people_of_a_rule_are_asked_where_all_that_it_names_matches(rule, variant, is_asked) -> None:
    rules = (ReviewRule(**rule, reviewers=("ann",), assignees=("bob",)),)
    policy = Policy(pull_requests=PullRequestPolicy(reviews=rules))
    view = repository("edge", labels={"tier": "prod"})
    context = web_context(
        a_target(view=view), variants={WEB: variant}, inventory={"policy": policy, "views": (view,)}
    )

    people = find_people([replace(KEPT, variant=WEB)], context)

    assert people == (People(("ann",), ("bob",)) if is_asked else People((), ()))
