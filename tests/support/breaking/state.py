"""What is there of each unit: refs, pull requests and records, as far as it is of that unit alone."""

import json
import re

from reconciler.records.state import branch_records
from tests.support.breaking.faults import Reader, narrowest
from tests.support.breaking.world import PACKAGES
from tests.support.combination import trees
from tests.support.git import Repo
from tests.support.world import World

State = dict[str, dict[str, object]]
_NUMBER = re.compile(r'"number": ?\d+|"url": ?"[^"]*"|"since": ?"[^"]*"')


def state_of(world: World) -> State:
    """Return by unit what the repositories hold of it."""
    state: State = {name: {} for name in (*PACKAGES, "yew")}
    for path in world.repositories():
        repo = Repo(path)
        for ref, oid in repo.refs().items():
            if ref.startswith("refs/reconciler/pulls/"):
                data = json.loads(next(iter(repo.git[oid].tree)).data)
                data.pop("number")
                _add(state, data["head"], f"{path.stem} pull {data['head']} {data['state']}", data)
            elif not ref.startswith("refs/heads/reconciler/fleet/st"):
                _add(state, ref, f"{path.stem} {ref}", oid)
    control = Repo(world.control)
    for branch in ("state", "status"):
        ref = f"refs/heads/reconciler/fleet/{branch}"
        files = trees.files(control, trees.root(control, ref), "") if control.find(ref) else {}
        for path, data in branch_records(files).items():
            _add(state, path, f"{branch} {path}", _NUMBER.sub("", data.decode()))
    return state


def _add(state: State, text: str, key: str, value: object) -> None:
    units = narrowest(Reader().units(text, 1))
    for unit in units:
        if unit in state:
            state[unit][key] = value
