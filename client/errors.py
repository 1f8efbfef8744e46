"""
Errors of ``client.client``.

ClientError
  + Unreachable        no controller answered
  + NoLeader           controllers answered, and none of them leads
  + RefusedError       a definite no, with its problem document
  + OutcomeUnknown     it may have been executed; names the request id
  + BadAnswer          something answered that is not a controller of this version
  + NotTrusted         a handshake failed: a side was not proved (``client.identity``)
"""

from __future__ import annotations

from rollcall_ha.controller.contract.ids import RequestId
from rollcall_ha.controller.contract.views import Problem


class ClientError(Exception):
    """Base of all errors that a call raises."""


class Unreachable(ClientError):
    """No controller answered. Nothing was executed."""


class NoLeader(ClientError):
    """Controllers answered, and none of them leads. Nothing was executed."""


class RefusedError(ClientError):
    """A definite no; ``problem`` has the code, both values and the remedy."""

    def __init__(self, problem: Problem) -> None:
        """Keep the problem document unchanged."""
        super().__init__(f"{problem.code}: {problem.detail}")
        self.problem = problem


class OutcomeUnknown(ClientError):
    """The request was sent and no definite answer came: it may be executed now, later, or never."""

    def __init__(self, request_id: RequestId, reason: str) -> None:
        """The id finds it in the record, and repeats it without executing it twice."""
        super().__init__(f"outcome unknown of request {request_id}: {reason}")
        self.request_id = request_id


class BadAnswer(ClientError):
    """Something answered that is not a controller of this version."""
