"""The approval of a lift for tests of the HTTP API and of the command."""

from counterpoint.proto.approvals import Lift

URL = "/v1/approvals"
LIFT = Lift(spend_id="t1", limit="the budget of the task", cap_tokens=10, used_tokens=9, by_tokens=1000)
