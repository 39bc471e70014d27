"""A certificate authority for tests, which issues server and client certificates for loopback. Keys are files in a folder."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Issues certificates. `ca` is the path of the authority's own certificate."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
        self.ca = self._write("ca", self._certificate(self._name, self._key.public_key(), []))

    def issue(
        self, *names: str, organization: str = "", days: float = 1, subject: x509.Name | None = None
    ) -> tuple[str, str]:
        """Issue a certificate for these host names or addresses, from two days ago to `days` from now.

        The subject is `subject`, by default the first of the names.

        Returns:
            The paths of the certificate and of its key.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
        subject = subject or x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        certificate = self._certificate(subject, key.public_key(), list(names), days)
        text = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (self._folder / f"{names[0]}.key").write_bytes(text)
        return self._write(names[0], certificate), str(self._folder / f"{names[0]}.key")

    def expiry(self, certificate: str) -> datetime.datetime:
        """When the certificate at a path expires."""
        return x509.load_pem_x509_certificate(Path(certificate).read_bytes()).not_valid_after_utc

    def revoke(self, certificate: str, server: ssl.SSLContext) -> None:
        """Revoke the certificate at a path: from now on `server` refuses it."""
        now = datetime.datetime.now(datetime.UTC)
        serial = x509.load_pem_x509_certificate(Path(certificate).read_bytes()).serial_number
        revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        revocations = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._name)
            .last_update(now - datetime.timedelta(days=1))
            .next_update(now + datetime.timedelta(days=1))
            .add_revoked_certificate(revoked)
            .sign(self._key, hashes.SHA256())
        )
        path = self._folder / "revocations.pem"
        path.write_bytes(revocations.public_bytes(serialization.Encoding.PEM))
        server.load_verify_locations(path)
        server.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF

    def _certificate(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, names: list[str], days: float = 1
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=2))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=not names, path_length=None), critical=True)
            # Python 3.13 requires both.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(_usage(signs=not names), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), False)
        return builder.sign(self._key, hashes.SHA256())

    def _write(self, name: str, certificate: x509.Certificate) -> str:
        path = self._folder / f"{name}.pem"
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return str(path)


def _usage(*, signs: bool) -> x509.KeyUsage:
    """The key usage: an authority signs certificates, other keys sign data."""
    no = (
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(digital_signature=not signs, key_cert_sign=signs, crl_sign=signs, **dict.fromkeys(no, False))


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
