"""Certificates of a CA of one test, made with openssl."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificates:
    """A folder with `ca.pem`, and a certificate with its key for each name."""

    folder: Path

    @property
    def ca(self) -> Path:
        """The certificate of the CA."""
        return self.folder / "ca.pem"

    def certificate(self, name: str) -> Path:
        """The certificate of this name."""
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        """Its private key."""
        return self.folder / f"{name}-key.pem"


def certificates(folder: Path, *names: str) -> Certificates:
    """Make a CA, and certificates of 127.0.0.1 that it signed, for servers and clients."""
    folder.mkdir(parents=True)
    made = Certificates(folder)
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    _run(*new, "-subj", "/CN=authority", "-keyout", made.key("ca"), "-out", made.ca,
         "-addext", "keyUsage=critical,keyCertSign,cRLSign")  # fmt: skip
    for name in names:
        _run(*new, "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost",
             "-addext", "basicConstraints=critical,CA:FALSE", "-addext", "extendedKeyUsage=serverAuth,clientAuth",
             "-CA", made.ca, "-CAkey", made.key("ca"), "-keyout", made.key(name),
             "-out", made.certificate(name))  # fmt: skip
        made.key(name).chmod(0o644)
    return made


def _run(*words: str | Path) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
