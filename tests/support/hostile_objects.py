"""Write random and malformed Git objects and refs into a repository, past every check of git's commands."""

import hashlib
import random
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.git import Repo

if TYPE_CHECKING:
    from collections.abc import Callable

ZERO = "0" * 40
PERSON = b"Kim <kim@example.com> 1767225600 +0000"


def write_object(repository: Path, kind: bytes, data: bytes, *, body: bytes | None = None) -> str:
    """Write a loose object of any bytes; with `body` the file holds something else than its id says."""
    full = b"%b %d\0%b" % (kind, len(data), data)
    oid = hashlib.sha1(full, usedforsecurity=False).hexdigest()
    path = repository / "objects" / oid[:2] / oid[2:]
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        path.write_bytes(zlib.compress(full if body is None else body))
    return oid


def point(repository: Path, ref: str, oid: str) -> None:
    """Write a loose ref of any content."""
    path = repository / ref
    if path.parent.is_file() or path.is_dir():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{oid}\n")


class HostilePusher:
    """Somebody who may push to one repository and writes anything into it, from a seed."""

    def __init__(self, repository: Path, seed: int) -> None:
        self.repository = repository
        self.random = random.Random(seed)
        self.main = Repo(repository).oid("main")
        self.log: list[str] = []

    def attack(self, times: int) -> None:
        """Do several things that no honest client does."""
        acts: list[Callable[[], str]] = [
            self.odd_commit_on_a_draft,
            self.odd_commit_on_main,
            self.malformed_tree_on_a_draft,
            self.malformed_tree_on_main,
            self.missing_blob,
            self.ref_to_anything,
            self.odd_tag,
            self.random_object,
            self.forged_pull_request,
        ]
        self.log += [self.random.choice(acts)() for _ in range(times)]

    def odd_commit_on_a_draft(self) -> str:
        oid = self._odd_commit(self._tree_of_main())
        ref = self._draft()
        point(self.repository, ref, oid)
        return f"odd commit {oid} on {ref}"

    def odd_commit_on_main(self) -> str:
        oid = self._odd_commit(self._tree_of_main())
        point(self.repository, "refs/heads/main", oid)
        return f"odd commit {oid} on main"

    def malformed_tree_on_a_draft(self) -> str:
        oid = self._commit(self._malformed_tree())
        ref = self._draft()
        point(self.repository, ref, oid)
        return f"malformed tree in {oid} on {ref}"

    def malformed_tree_on_main(self) -> str:
        root = b"40000 web\0" + bytes.fromhex(self._malformed_tree())
        oid = self._commit(write_object(self.repository, b"tree", root))
        point(self.repository, "refs/heads/main", oid)
        return f"malformed package tree in {oid} on main"

    def missing_blob(self) -> str:
        absent = f"{self.random.getrandbits(160):040x}"
        name = self.random.choice([b"Kptfile", b"app.yaml"])
        package = write_object(self.repository, b"tree", b"100644 " + name + b"\0" + bytes.fromhex(absent))
        path = self.random.choice([b"web", b"aaa", b"db"])
        root = write_object(self.repository, b"tree", b"40000 " + path + b"\0" + bytes.fromhex(package))
        ref = self.random.choice([self._draft(), "refs/heads/main"])
        point(self.repository, ref, self._commit(root))
        return f"missing blob {name!r} of {path!r} on {ref}"

    def ref_to_anything(self) -> str:
        target = self.random.choice(
            [ZERO, "f" * 40, "", "ref: refs/heads/nowhere", "not an id", self._tree_of_main(), self._blob()]
        )
        ref = self.random.choice(
            [self._draft(), "refs/tags/web/v9", "refs/heads/drafts/web", "refs/reconciler/x"]
        )
        point(self.repository, ref, target)
        return f"{ref} is {target!r}"

    def odd_tag(self) -> str:
        target = self.random.choice([self.main, self._tree_of_main(), self._blob(), "f" * 40])
        lines = [
            b"object " + target.encode(),
            b"type " + self.random.choice([b"commit", b"tree", b"tag", b"x"]),
        ]
        data = b"\n".join([*lines, b"tag v7", b"tagger " + self._person()]) + b"\n\nRelease\n"
        oid = write_object(self.repository, b"tag", data)
        point(
            self.repository,
            f"refs/tags/web/v{self.random.randrange(1, 10 ** self.random.randrange(1, 25))}",
            oid,
        )
        return f"odd tag {oid}"

    def random_object(self) -> str:
        kind = self.random.choice([b"commit", b"tree", b"blob", b"tag"])
        data = self.random.randbytes(self.random.randrange(200))
        body = self.random.choice([None, b"", b"blob 3\0abc", self.random.randbytes(40)])
        oid = write_object(self.repository, kind, data, body=body)
        ref = self.random.choice([self._draft(), "refs/tags/web/v8"])
        point(self.repository, ref, oid)
        return f"random {kind!r} {oid} at {ref}"

    def forged_pull_request(self) -> str:
        number = self.random.choice(["1", "99", "5/x", "999999999", "1" + "0" * 20])
        content = self.random.choice(
            [
                b"{}",
                b'{"number": 100000000000000000000}',
                b'{"number": "one"}',
                b"\xff\xfe",
                b'{"head": "drafts/web/packagevariant-1", "state": "from a newer version"}',
                b'{"number": %b, "head": "drafts/db/w", "base": "", "title": "", "body": "", "headOid": "%b"}'
                % (number.encode(), b"f" * 40),
                b'{"number": %b, "head": "drafts/web/v", "base": "main", "title": "t", "body": "b"}'
                % number.encode(),
            ]
        )
        blob = write_object(self.repository, b"blob", content)
        tree = write_object(self.repository, b"tree", b"100644 pull.json\0" + bytes.fromhex(blob))
        point(self.repository, f"refs/reconciler/pulls/{number}", self._commit(tree))
        return f"forged pull request {number}: {content!r}"

    def _odd_commit(self, tree: str) -> str:
        lines = [b"tree " + tree.encode()]
        lines += [
            b"parent " + p.encode()
            for p in self.random.choice([[self.main], [], ["f" * 40], [self.main] * 3])
        ]
        if self.random.random() < 0.8:
            lines.append(b"author " + self._person())
        if self.random.random() < 0.8:
            lines.append(b"committer " + self._person())
        encodings = [b"undefined", b"idna", b"punycode", b"base64", b"utf-7", b"\xff", b"utf-8\0", b"UTF-16"]
        if self.random.random() < 0.7:
            lines.append(b"encoding " + self.random.choice(encodings))
        message = self.random.choice(
            [b"Fix\n", b"", b"\xff\xfe\0\n", b"kpt: {}\n", self.random.randbytes(60)]
        )
        return write_object(self.repository, b"commit", b"\n".join(lines) + b"\n\n" + message)

    def _person(self) -> bytes:
        return self.random.choice(
            [
                PERSON,
                b"",
                b"<>",
                b"Kim",
                b"\xff\xfe <\xff> 1 +0000",
                b"Kim <kim@example.com> 99999999999999999999 +0000",
                b"Kim <kim@example.com> -5 +0000",
                b"Kim <kim@example.com> 1767225600 +99999999",
                b"a\r\x1b[31m <b> 1767225600 +0000",
            ]
        )

    def _commit(self, tree: str) -> str:
        lines = [b"tree " + tree.encode(), b"parent " + self.main.encode()]
        lines += [b"author " + PERSON, b"committer " + PERSON]
        return write_object(self.repository, b"commit", b"\n".join(lines) + b"\n\nChange\n")

    def _malformed_tree(self) -> str:
        blob = bytes.fromhex(self._blob())
        entry = b"100644 app.yaml\0" + blob
        data = self.random.choice(
            [
                entry[:-3],
                b"no tree at all",
                b"99999999999 app.yaml\0" + blob,
                b"100644 \0" + blob,
                b"100644 ../../x\0" + blob,
                b"100644 .git\0" + blob,
                entry + entry,
                b"160000 sub\0" + blob,
                b"120000 link\0" + blob,
                b"40000 app\0" + blob,
                b"100644 \xff\xfe\0" + blob,
                self.random.randbytes(80),
            ]
        )
        return write_object(self.repository, b"tree", data)

    def _blob(self) -> str:
        return write_object(self.repository, b"blob", b"a: 1\n")

    def _tree_of_main(self) -> str:
        return Repo(self.repository).tree(self.main)

    def _draft(self) -> str:
        package = self.random.choice(["web", "db", "other"])
        return (
            f"refs/heads/{self.random.choice(['drafts', 'proposed'])}/{package}/w{self.random.randrange(3)}"
        )
