"""Keys for tests, and git's own opinion of a signature."""

import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.ci import need

WHO = "bot@example.com"


class Key(NamedTuple):
    """A key pair on disk, and a file in which git finds that the key is trusted."""

    private: Path
    allowed: Path


def make_key(folder: Path, kind: str = "ed25519", passphrase: str = "") -> Key:
    """Make a key pair below a folder; skip the test without ssh-keygen, with which Git signs and verifies."""
    need("ssh-keygen")
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


class GpgKey(NamedTuple):
    """A key pair of GnuPG: its home directory, its id and the armoured public key."""

    home: Path
    id: str
    public: str


def make_gpg_key(home: Path, created: int = 0) -> GpgKey:
    """Make a key in a home directory of its own, as of a given second or now; skip the test without gpg."""
    need("gpg")
    home.mkdir(mode=0o700)

    def gpg(*arguments: str) -> str:
        then = ["--faked-system-time", f"{created}!"] if created else []
        command = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--passphrase", "", *then]
        command += ["--pinentry-mode", "loopback", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    gpg("--quick-generate-key", f"Bot <{WHO}>", "ed25519", "sign", "never")
    colons = gpg("--list-keys", "--with-colons").splitlines()
    fingerprint = next(line.split(":")[9] for line in colons if line.startswith("fpr"))
    return GpgKey(home, fingerprint, gpg("--armor", "--export"))


def signing_options(key: Key | GpgKey) -> list[str]:
    """Return the options with which git signs commits and tags with a key."""
    if isinstance(key, GpgKey):
        return ["-c", f"user.signingKey={key.id}"]
    return ["-c", "gpg.format=ssh", "-c", f"user.signingKey={key.private}"]


@cache
def app_key() -> rsa.RSAPrivateKey:
    """Return the private key of a GitHub App, one in all tests."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def app_pem() -> str:
    """Return that key as its file has it."""
    none = serialization.NoEncryption()
    text = app_key().private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, none)
    return text.decode()
