"""Secrets in files: a setting that is not in the environment is read from the folder of secrets."""

from pathlib import Path

import pytest
from pydantic import ValidationError
from pydantic_settings import SettingsError

from counterpoint.bus.settings import BusSettings, ProvisionSettings
from counterpoint.memory.record.owner_settings import OwnerSettings
from counterpoint.memory.settings import MemorySettings


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COUNTERPOINT_SECRETS_DIR", str(tmp_path))
    monkeypatch.setenv("COUNTERPOINT_NATS_USER", "memory")
    return tmp_path


def test_files_are_read_in_capital_and_in_small_letters(folder: Path) -> None:
    (folder / "counterpoint_nats_password").write_text("sesame\n")
    (folder / "COUNTERPOINT_POSTGRES_URL").write_text("postgresql://u:p@db/x\n")
    (folder / "counterpoint_signing_keys").write_text('[{"id": 1, "private": "%s"}]' % ("00" * 32))
    (folder / "counterpoint_audit_key").write_text("11" * 32)
    settings = MemorySettings()
    assert settings.nats_password is not None
    assert settings.nats_password.get_secret_value() == "sesame"
    assert settings.postgres_url.get_secret_value() == "postgresql://u:p@db/x"
    assert settings.signing_keys[0].id == 1
    assert "sesame" not in str(settings.masked())


def test_a_variable_is_used_before_its_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "counterpoint_nats_password").write_text("file")
    monkeypatch.setenv("COUNTERPOINT_NATS_PASSWORD", "variable")
    password = ProvisionSettings().nats_password
    assert password is not None
    assert password.get_secret_value() == "variable"


def test_the_jobs_of_the_owner_read_them_too(folder: Path) -> None:
    (folder / "counterpoint_postgres_owner_url").write_text("postgresql://o:p@db/x")
    (folder / "counterpoint_installation").write_text("1a2b")
    assert (OwnerSettings().url, OwnerSettings().installation) == ("postgresql://o:p@db/x", "1a2b")


def test_a_missing_folder_of_secrets_is_refused_by_its_variable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_SECRETS_DIR", str(folder / "absent"))
    with pytest.raises(SettingsError, match="COUNTERPOINT_SECRETS_DIR"):
        BusSettings()


@pytest.mark.parametrize(
    ("values", "named"),
    [({}, "COUNTERPOINT_NATS_PASSWORD or COUNTERPOINT_NATS_CREDS"),
     ({"nats_cert": "/c"}, "COUNTERPOINT_NATS_CERT and COUNTERPOINT_NATS_KEY"),
     ({"nats_password": "p", "nats_key": "/k"}, "COUNTERPOINT_NATS_CERT and COUNTERPOINT_NATS_KEY")],
)  # fmt: skip
def test_an_incomplete_login_is_refused_by_the_names_of_its_variables(values: dict[str, str], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        BusSettings(nats_user="memory", **values)  # type: ignore[arg-type]


def test_a_credentials_file_is_used_before_a_password_and_a_certificate_alone_is_a_login(tmp_path: Path) -> None:
    file = tmp_path / "memory.creds"
    both = BusSettings(nats_user="memory", nats_password="p", nats_creds=file)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        both.login()
    file.write_text("-----BEGIN NATS USER JWT-----")
    with pytest.raises(ValueError, match="COUNTERPOINT_NATS_CREDS"):
        both.login()
    file.write_text("-----BEGIN NATS USER JWT-----\n-----BEGIN USER NKEY SEED-----")
    assert both.login() == {"user_credentials": str(file)}
    assert BusSettings(nats_user="memory", nats_cert="/c", nats_key="/k").login() == {}  # type: ignore[arg-type]


@pytest.mark.parametrize(("url", "encrypted"), [("nats://h:1", False), ("tls://h:1", True)])
def test_the_scheme_asks_for_tls_with_well_known_issuers(url: str, encrypted: bool) -> None:
    settings = BusSettings(nats_user="memory", nats_password="p", nats_url=url)  # type: ignore[arg-type]
    assert (settings.tls() is not None) is encrypted
