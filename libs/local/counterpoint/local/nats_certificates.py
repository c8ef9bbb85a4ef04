"""Client certificates of the bus's users: signed by the key of a CA, or requested from cert-manager."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from counterpoint.proto.errors import ErrorCode, Permanent, Problem

CertificateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
DAYS = 365
"""Days for which a certificate is valid, at most until its CA ends."""
_BACKDATED = timedelta(minutes=5)
_MAKE_ONE = (
    "make a CA for the bus alone by `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 "
    '-subj "/CN=counterpoint bus" -addext keyUsage=critical,keyCertSign -keyout ca.key -out ca.crt`'
)


@dataclass(frozen=True)
class CertificateAuthority:
    """The certificates of a CA, its own first and then those above it, and its private key."""

    chain: tuple[x509.Certificate, ...]
    key: CertificateKey

    @classmethod
    def load(cls, certificate: Path, key: Path) -> "CertificateAuthority":
        """Read PEM files. Raises `Permanent` `invalid` for files that are no CA that is valid now, and its key."""
        try:
            chain = tuple(x509.load_pem_x509_certificates(certificate.read_bytes()))
        except (OSError, ValueError) as error:
            raise _invalid("nats-ca", f"{certificate} is no PEM file of a certificate: {_reason(error)}") from error
        try:
            found = serialization.load_pem_private_key(key.read_bytes(), password=None)
        except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
            problem = f"{key} is no PEM file of a private key without a passphrase: {_reason(error)}"
            raise _invalid("nats-ca-key", problem) from error
        own = chain[0]
        if not isinstance(found, CertificateKey):
            raise _invalid("nats-ca-key", f"{key} has neither an EC nor an RSA key")
        if _public(found.public_key()) != _public(own.public_key()):
            raise _invalid("nats-ca-key", f"{key} is not the key of {certificate}")
        if not _may_sign(own):
            raise _invalid("nats-ca", f"{certificate} is not the certificate of a CA")
        if not own.not_valid_before_utc <= datetime.now(UTC) < own.not_valid_after_utc:
            validity = f"from {own.not_valid_before_utc:%Y-%m-%d} to {own.not_valid_after_utc:%Y-%m-%d}"
            raise _invalid("nats-ca", f"{certificate} is valid {validity} only")
        return cls(chain, found)

    def issue(self, user: str, days: int = DAYS) -> tuple[str, str]:
        """Return a new certificate of a user, with the CAs between it and the root, and its key, as PEM.

        The server takes the user from the certificate's DNS name.
        """
        own, key, now = self.chain[0], ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user)]))
            .issuer_name(own.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(max(now - _BACKDATED, own.not_valid_before_utc))
            .not_valid_after(min(now + timedelta(days=days), own.not_valid_after_utc))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(user)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        between = [each for each in self.chain if each.subject != each.issuer]
        pem = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in (made, *between))
        text = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return pem.decode(), text.decode()


@dataclass(frozen=True)
class CertificateIssuer:
    """An Issuer or ClusterIssuer of cert-manager."""

    kind: str
    name: str

    @classmethod
    def parse(cls, given: str) -> "CertificateIssuer":
        """Return the issuer of NAME or KIND/NAME. Raises `Permanent` `invalid`."""
        kind, _, name = given.rpartition("/")
        if kind not in ("", "Issuer", "ClusterIssuer") or not name:
            raise _invalid("nats-issuer", f"{given} is neither NAME, Issuer/NAME nor ClusterIssuer/NAME")
        return cls(kind or "Issuer", name)

    def request(self, user: str, metadata: dict[str, str]) -> dict[str, Any]:
        """Return the Certificate of a user; it and the Secret that cert-manager makes have the same name."""
        return {
            "apiVersion": "cert-manager.io/v1",
            "kind": "Certificate",
            "metadata": metadata,
            "spec": {
                "secretName": metadata["name"],
                "dnsNames": [user],
                "usages": ["digital signature", "client auth"],
                "duration": f"{24 * DAYS}h",
                "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
                "issuerRef": {"group": "cert-manager.io", "kind": self.kind, "name": self.name},
            },
        }


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        if not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return False
        return certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound as absent:
        return absent.oid == x509.KeyUsage.oid


def _public(key: Any) -> bytes:
    made: bytes = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return made


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "it cannot be read"


def _invalid(option: str, problem: str) -> Permanent:
    return Permanent(ErrorCode.INVALID, (Problem(field=option, problem=f"{problem}; {_MAKE_ONE}"),))
