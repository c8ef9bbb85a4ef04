"""Titles: one line that fits a list, made of what says most about the failure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.proto.titles import TITLE_CHARS, title_of

PYTHON = 'Traceback (most recent call last):\n  File "/srv/a.py", line 3, in f\n    g()\nhttp.client.ReadTimeout: '


@pytest.mark.parametrize(
    ("error", "job", "title"),
    [
        (
            "ConnectionError: could not reach db.internal: connection refused (host 10.1.2.3, port 5432)",
            "load",
            "load failed: ConnectionError: could not reach db.internal: connection refused",
        ),
        (
            'fatal: [web-03]: UNREACHABLE! => {"changed": false, "msg": "Failed to connect to the host via ssh:'
            ' Permission denied (publickey).", "unreachable": true}',
            "patch-web",
            "patch-web: Failed to connect to the host via ssh: Permission denied (publickey)",
        ),
        (
            'fatal: [db-2]: FAILED! => {"cmd": ["pg_ctl", "stop"], "msg": "non-zero return code", "rc": 1, "stderr":'
            ' "pg_ctl: no server running"}',
            "stop",
            "stop failed: pg_ctl: no server running",
        ),
        ('HTTP 422: {"detail": "shift 3 is closed"}', "book", "book failed: HTTP 422: shift 3 is closed"),
        ('bad row {"msg": "x"} in part 3', "load", 'load failed: bad row {"msg": "x"} in part 3'),
        ('half a result {"msg": "x', "load", 'load failed: half a result {"msg": "x'),
        (PYTHON + "Read timed out. (read timeout=30)", None, "ReadTimeout: Read timed out. (read timeout=30)"),
        (
            "org.example.StageException: stage 3 failed 4 times, most recent failure: executor lost on node 17",
            "hourly_clicks_by_country_and_device",
            "hourly_clicks_by_country_and_device: StageException: stage 3 failed 4 times",
        ),
        ("Error: /opt/app/releases/42/run.sh: not found", None, "Error: run.sh: not found"),
        (
            "batch 7f3d1b2c-1111-2222-3333-444455556666 of 2026-05-20T04:12:01Z is broken, request_id=abcdef0123456789",
            None,
            "batch of is broken",
        ),
        ("segment 0x8f2a is sealed, error 0x80070005", None, "segment is sealed, error 0x80070005"),
        ("the shutter at 0x7f2a did not close (code 0x21)", None, "the shutter at did not close (code 0x21)"),
        ("GET https://api.example/v1/rates?day=1&token=x: 503", None, "GET https://api.example/v1/rates 503"),
        (r"spoolsv.exe: error 0x0000011b at \\prt01\LABELS", None, "spoolsv.exe: error 0x0000011b at LABELS"),
        (
            "smtplib.SMTPDataError: (550, b'5.7.60 Client does not have permissions to send as this sender of mail')",
            None,
            "SMTPDataError: (550, b'5.7.60 Client does not have permissions to send as this …",
        ),
        (
            "Task FIN.LEDGER failed: 002003 (42S02): Object 'FIN.STAGE.RAW' does not exist or not authorized.",
            "FIN.LEDGER",
            "FIN.LEDGER: 002003: Object 'FIN.STAGE.RAW' does not exist or not authorized",
        ),
        ("Step load failed: RC=12", "load", "load failed: Step load failed: RC=12"),
        (
            "Task sink-0 threw an uncaught exception: Error reading the Avro message with id -1 ... Unknown magic byte",
            "sink",
            "sink failed: Error reading the Avro message with id -1 ... Unknown magic byte",
        ),
        ("  ", "load", "load failed"),
        (
            "java.sql.SQLTransientConnectionException: HikariPool-1 - Connection is not available, request timed out",
            "settle",
            "settle: SQLTransientConnectionException: HikariPool-1 - Connection is not …",
        ),
        (
            "HikariPool-1 - Connection is not available, request timed out after 30000ms.",
            "settle_the_payments_of_every_partner",
            "settle_the_payments_of_every_partner: HikariPool-1 - Connection is not available",
        ),
        (
            'fatal: [web-4]: UNREACHABLE! => {"msg": "Failed to connect to the host via ssh: ssh: connect to host'
            ' 10.2.3.4 port 22: Connection timed out", "unreachable": true}',
            "patch-web",
            "patch-web: Failed to connect to the host via ssh: ssh: … Connection timed out",
        ),
        (
            'Internal error occurred: failed calling webhook "v.example": tls: failed to verify certificate: x509:'
            " certificate signed by unknown authority",
            "apply",
            "apply failed: Internal error occurred: … certificate signed by unknown authority",
        ),
        (
            "Auftrag beendet: Dateiübertragung der Nachtbestellungen: sftp: Übertragung wurde vom Server abgelehnt",
            "lager",
            "lager failed: Auftrag beendet: … Übertragung wurde vom Server abgelehnt",
        ),
        (
            'pods "web-7" is forbidden: exceeded quota: team-a, requested: cpu=2Gi, used: cpu=15Gi, limited: cpu=16',
            "apply",
            'apply: pods "web-7" is forbidden: exceeded quota: team-a, requested: cpu=2Gi …',
        ),
        (
            'could not extend file "base/16401/24576": No space left on device\nHINT:  Check free disk space.',
            "shop.load",
            'shop.load: could not extend file "base/16401/24576": No space left on device',
        ),
        (
            "pod tile-81125 of the nightly run was terminated: OOMKilled: out of memory in strip 12",
            "tiles",
            "tiles: pod tile-81125 of the nightly run was terminated: OOMKilled: out of …",
        ),
        (
            "Command '['make', 'tiles']' returned non-zero exit status 2.\nrow 1 ok\nrow 2 ok\n"
            "ValueError: the flat field of sensor 3 has 17 dead columns (limit 12)",
            "tiles",
            "tiles: ValueError: the flat field of sensor 3 has 17 dead columns (limit 12)",
        ),
        (
            "Command '['make', 'tiles', '--all', '--zoom', '14', '--out', 'dist']' returned non-zero exit status 2.",
            "tiles",
            "tiles: Command returned non-zero exit status 2",
        ),
        (
            "[warning] (7) : server app/1 is down, reason: the check in layer 4 timed out. No backup is left, 0 up.",
            "lb",
            "lb failed: server app/1 is down, reason: the check in layer 4 timed out",
        ),
        (
            'Database Error in model fct_tax (models/fct_tax.sql)\n  column "rate" does not exist\n'
            "  LINE 21:     sum(net * rate)\n  compiled code at target/run/shop/models/fct_tax.sql",
            "fct_tax",
            'fct_tax failed: column "rate" does not exist',
        ),
    ],
)
def test_a_title_names_the_job_and_the_error_without_ids_paths_and_times(
    error: str, job: str | None, title: str
) -> None:
    assert title_of("Find out why.", error=error, job=job) == title


def test_a_title_that_was_given_stays_and_a_long_one_is_shortened() -> None:
    assert title_of("x", "The  import\nfails", "ValueError: a", "load") == "The import fails"
    error = "ConnectionError: could not reach db.internal, nor any of its three standbys: connection refused"
    assert title_of("x", f"load failed: {error} in the first try", error, "load") == title_of("x", None, error, "load")
    assert title_of("x", "Load", "ValueError: a", "shop.load") == "shop.load failed: ValueError: a"
    assert title_of("x", "shop", None, "shop") == "shop"
    given = "load failed: ValueError: " + "a word and " * 20
    assert title_of("x", given).startswith("load failed: ValueError: a word and")


def test_without_title_and_error_it_is_the_first_sentence() -> None:
    assert title_of("\n Nobody can print. Since today.\nMore.") == "Nobody can print."
    assert title_of("Why? " * 2) == "Why?"


@given(
    st.text(max_size=400), st.none() | st.text(max_size=400), st.none() | st.text(max_size=400), st.none() | st.text()
)
def test_a_title_is_one_line_that_fits_whoever_submits(
    description: str, title: str | None, error: str | None, job: str | None
) -> None:
    made = title_of(description, title, error, job)
    assert 0 < len(made) <= TITLE_CHARS
    assert len(made.splitlines()) == 1
