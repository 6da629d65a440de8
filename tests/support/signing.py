"""Keys for tests, and git's own opinion of a signature."""

import subprocess
from pathlib import Path
from typing import NamedTuple

WHO = "bot@example.com"


class Key(NamedTuple):
    """A key pair on disk, and a file in which git finds that the key is trusted."""

    private: Path
    allowed: Path


def make_key(folder: Path, kind: str = "ed25519", passphrase: str = "") -> Key:
    """Make a key pair below a folder."""
    folder.mkdir(exist_ok=True)
    private = folder / "id"
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", WHO, "-f", str(private)]
    subprocess.run(command, check=True)
    allowed = folder / "allowed"
    allowed.write_text(f"{WHO} {private.with_suffix('.pub').read_text()}")
    return Key(private, allowed)


def verify(repository: Path, commit: str, key: Key) -> bool:
    """Ask git whether this key signed a commit."""
    command = ["git", "-C", str(repository), "-c", f"gpg.ssh.allowedSignersFile={key.allowed}"]
    ran = subprocess.run([*command, "verify-commit", commit], capture_output=True, text=True, check=False)
    return ran.returncode == 0 and "Good" in ran.stderr
