"""Injection points: objects of a package whose content comes from the cluster."""


def team_point(need: str) -> str:
    """Return a point of kind Team, which is `required` or `optional`."""
    return (
        "apiVersion: hr.example.com/v1\nkind: Team\nmetadata:\n  name: team\n  annotations:\n"
        f"    kpt.dev/config-injection: {need}\nspec: {{}}\n"
    )
