"""GitHub App installation tokens: signed with the App's key, renewed before they end."""

import threading
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from reconciler.errors import UnavailableError
from reconciler.forge.budget import SYSTEM_CLOCK, Budget, Clock
from reconciler.forge.http import StaticToken, Transport
from reconciler.policy import WriteLimits
from reconciler.report.redact import learn_credential

_RENEW_BEFORE_S = 600
_LIFE_S = 540
_BACK_S = 60
PERMISSIONS = {"contents": "write", "pull_requests": "write", "issues": "write", "metadata": "read"}
READ_PERMISSIONS = {"contents": "read", "pull_requests": "read", "metadata": "read"}
"""What a run asks for that writes nothing."""
DASHBOARD_PERMISSIONS = {"issues": "read"}
CHECK_PERMISSIONS = {"checks": "read", "statuses": "read"}
"""Asked for only where approval waits for checks: an App that lacks a permission gets no token at all."""


class App(NamedTuple):
    """An App as one installation of it; `key` is its private key in PEM, never shown."""

    app_id: str
    installation_id: str
    key: str

    def __repr__(self) -> str:
        return f"App({self.app_id}, {self.installation_id})"


class AppToken:
    """The Authorization of an installation; for several threads.

    Narrowed to what a run needs. A token lives an hour; it is renewed ten minutes before its end,
    and once when the forge refuses it.
    """

    def __init__(
        self,
        api: str,
        app: App,
        clock: Clock = SYSTEM_CLOCK,
        permissions: Mapping[str, str] = PERMISSIONS,
    ) -> None:
        self.api = api
        self.app = app
        learn_credential(app.key)
        self.clock = clock
        self._permissions = dict(permissions)
        self._token = ""
        self._until = 0.0
        self._lock = threading.Lock()

    def value(self) -> str:
        """Return the header's value."""
        return f"Bearer {self.token()}"

    def renew(self) -> bool:
        """Forget the token."""
        self._until = 0.0
        return True

    def token(self) -> str:
        """Return a token that is valid for minutes to come, for git over https too.

        Raises:
            UnavailableError: The key is unusable, or the forge gives none.
        """
        with self._lock:
            if self.clock.now() > self._until - _RENEW_BEFORE_S:
                self._fetch()
            return self._token

    def _fetch(self) -> None:
        transport = Transport(
            self.api, StaticToken(self._signed()), Budget(WriteLimits(), self.clock), clock=self.clock
        )
        path = f"/app/installations/{self.app.installation_id}/access_tokens"
        reply = transport.write("POST", path, {"permissions": self._permissions}, repeatable=True)
        try:
            self._token = str(reply.data["token"])
            learn_credential(self._token)
            self._until = datetime.fromisoformat(reply.data["expires_at"]).timestamp()
        except (KeyError, TypeError, ValueError) as error:
            raise UnavailableError(f"{self.api} gave no installation token") from error

    def _signed(self) -> str:
        """Return the App's own proof: RS256, a minute back for clocks that differ, nine minutes on."""
        import jwt  # noqa: PLC0415 - slow to import, and needed by Apps alone

        now = int(self.clock.now())
        claims = {"iat": now - _BACK_S, "exp": now + _LIFE_S, "iss": self.app.app_id}
        try:
            return jwt.encode(claims, self.app.key, algorithm="RS256")
        except (ValueError, TypeError, jwt.PyJWTError) as error:
            raise UnavailableError(
                "The App's private key cannot be used", hint="Give the PEM file that GitHub made."
            ) from error
