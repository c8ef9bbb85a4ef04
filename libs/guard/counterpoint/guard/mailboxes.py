"""Mailboxes that belong to no person: of roles, of machines, and in examples."""

import re

_ROLES = """
team teams oncall on-call call ops devops dataops mlops secops sre noc soc support help helpdesk servicedesk desk
squad group list lists crew guild chapter office duty alerts alert alerting alarms alarm monitoring notifications
notification notify noreply donotreply reply no-reply do-not-reply mailer daemon bounce bounces postmaster
hostmaster webmaster abuse security privacy legal compliance info contact kontakt hello sales billing invoices
accounting finance hr jobs careers press marketing newsletter news feedback admin admins administrator
administrators root sysadmin dba dbas dev devs developers engineering engineers eng platform infra infrastructure
incidents incident escalation escalations pager tickets ticket reports report service services bot robot automation
ci cd build builds deploy release releases jenkins gitlab github airflow dagster spark kafka hadoop hdfs system
systems rufbereitschaft bereitschaft betrieb leitstelle dispatcher everyone all announce users dl pdl
"""
_HEADS = frozenset(_ROLES.split())
"""Words for a role, alone or at either end of a name such as `payments-oncall` or `team-orders`."""
_ANYBODY = """
user username user1 user2 you me email e-mail mail name
someone somebody nobody anyone example test foo bar baz foobar first.last firstname.lastname first_last address
recipient sender from to src dst login account customer
"""
_EXAMPLES = frozenset(_ANYBODY.split())
"""Generic names."""
_EXAMPLE_HOST = re.compile(
    r"(?:.*\.)?(?:example\.(?:com|org|net|edu)|example|test|invalid|localhost|company\.com|domain\.com)"
)
_MACHINE_HOST = re.compile(r".*\.iam\.gserviceaccount\.com|.*\.svc\.cluster\.local")
_NODES = frozenset(["rabbit", "celery", "ejabberd", "emqx", "couchdb", "riak", "worker", "default", "flower", "node"])
"""Prefixes of node names that look like addresses: `celery@worker1.example.com`."""
_PARTS = re.compile(r"[-_]")
_TEAM = re.compile(
    r"\b(?:team|group|gruppe|abteilung|department)[ -]([\w?]{2,40})"
    r"|(?<![\w?])([\w?]{2,40})[ -](?:team|group|gruppe|department)\b"
)


def is_nobody(name: str, host: str) -> bool:
    """Whether the mailbox `name` at `host`, both lowercase, belongs to no person.

    In a dotted name, which may be first and last name, each part must be a role.
    """
    if name in _NODES or _MACHINE_HOST.fullmatch(host) is not None:
        return True
    if (name in _EXAMPLES or name.startswith("your")) and _EXAMPLE_HOST.fullmatch(host) is not None:
        return True
    return all(_is_role(part) for part in name.partition("+")[0].split("."))


def is_team(name: str, line: str) -> bool:
    """Whether a line of text, in which `?` stands for a letter that is not ASCII, names a team as the mailbox:
    `storage` in "Storage team, storage@uni.example"."""
    named = (first or last for first, last in _TEAM.findall(line.lower()))
    return any(re.fullmatch(each.replace("?", "[a-z]{1,2}"), name) for each in named)


def _is_role(part: str) -> bool:
    bare = part.rstrip("0123456789")
    words = _PARTS.split(bare)
    return bare in _HEADS or words[0] in _HEADS or words[-1] in _HEADS
