"""Keys: which are taken, in which forms, and what is said of those that are not."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from a2a_sync.signing import CardSigner, CardVerifier
from a2a_sync.signing.jwk import algorithms_of, trusted_keys

EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PEM = EC.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
PUBLIC_PEM = EC.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
JWK = CardSigner(EC, kid="a").public_jwk


def private_jwk(key: Any) -> dict[str, Any]:
    jwk: dict[str, Any] = jwt.get_algorithm_by_name("ES256").to_jwk(key, as_dict=True)
    return jwk


@pytest.mark.parametrize(
    ("key", "algorithms"),
    [
        (EC, ("ES256",)),
        (ec.generate_private_key(ec.SECP384R1()), ("ES384",)),
        (ec.generate_private_key(ec.SECP521R1()), ("ES512",)),
        (ED, ("EdDSA",)),
        (RSA, ("RS256", "PS256", "RS384", "PS384", "RS512", "PS512")),
        (ec.generate_private_key(ec.SECP256K1()), ()),
        (ed448.Ed448PrivateKey.generate(), ()),
        (dsa.generate_private_key(1024), ()),
        (rsa.generate_private_key(public_exponent=65537, key_size=1024), ()),
    ],
)
def test_a_key_decides_its_algorithms_on_both_sides(key: Any, algorithms: tuple[str, ...]) -> None:
    assert algorithms_of(key) == algorithms_of(key.public_key()) == algorithms
    if not algorithms:
        with pytest.raises(ValueError, match="kind that is not supported"):
            CardSigner(key, kid="a")
        with pytest.raises(ValueError, match="kind that is not supported"):
            CardVerifier({"a": key.public_key()})


@pytest.mark.parametrize("key", [EC, PEM, PEM.encode(), private_jwk(EC)], ids=["object", "text", "bytes", "jwk"])
def test_a_private_key_has_several_forms(key: Any) -> None:
    assert CardSigner(key, kid="a").public_jwk == JWK


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("secret", "neither a private key in PEM nor a JWK"),
        (PUBLIC_PEM, "neither a private key in PEM nor a JWK"),
        ({"kty": "EC", "crv": "P-256"}, "neither a private key in PEM nor a JWK"),
        (JWK, "not a private key"),
        (EC.public_key(), "not a private key"),
        (None, "not a private key"),
        ({"kty": "oct", "k": "c2VjcmV0"}, "not a private key"),
    ],
)
def test_what_is_no_private_key_is_refused_without_being_shown(key: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        CardSigner(key, kid="a")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("algorithm", ["HS256", "none", "RS256"])
def test_an_algorithm_that_the_key_is_not_for_is_refused(algorithm: str) -> None:
    with pytest.raises(ValueError, match=f"not one for {algorithm}; it is for ES256"):
        CardSigner(EC, kid="a", algorithm=algorithm)


def test_a_signer_without_a_name_for_its_key_is_refused() -> None:
    with pytest.raises(ValueError, match="kid is empty"):
        CardSigner(EC, kid="")


def test_what_a_signer_shows_is_public() -> None:
    signer = CardSigner(RSA, kid="a", algorithm="PS256")

    assert signer.public_jwk.keys() == {"kty", "n", "e", "kid", "alg", "use"}
    assert repr(signer) == "CardSigner(kid='a', algorithm='PS256')"


TRUSTED: list[Any] = [
    PUBLIC_PEM,
    PUBLIC_PEM.encode(),
    EC.public_key(),
    EC,
    JWK,
    {"keys": [JWK]},
    [JWK],
    {"a": PUBLIC_PEM},
    {"a": JWK},
    {"a": [PUBLIC_PEM]},
]


@pytest.mark.parametrize("given", TRUSTED, ids=lambda given: str(given)[:30])
def test_what_is_trusted_has_many_forms(given: Any) -> None:
    (key,) = trusted_keys(given)

    assert key.key.public_numbers() == EC.public_key().public_numbers()
    assert key.kid in ("", "a")
    assert key.algorithms == ("ES256",)


@pytest.mark.parametrize("given", ["key", {"kty": "EC"}, {"kty": "oct", "k": "c2VjcmV0"}, [1], {"a": None}])
def test_what_is_no_key_is_not_trusted(given: Any) -> None:
    with pytest.raises(ValueError, match="trusted"):
        trusted_keys(given)


def test_keys_of_a_set_that_are_for_something_else_or_not_known_are_passed_over() -> None:
    others = [
        {**JWK, "use": "enc"},
        {**JWK, "key_ops": ["encrypt"]},
        {"kty": "new", "key_ops": 5},
        {"kty": "oct", "k": "c2VjcmV0"},
        {"kty": "oct"},
        {**JWK, "alg": "none"},
        {"kty": "new"},
        {**JWK, "x": "!"},
        "junk",
    ]

    assert [key.kid for key in trusted_keys({"keys": [*others, JWK]})] == ["a"]


def test_a_key_may_have_its_time() -> None:
    now = time.time()

    def objection(**members: Any) -> str:
        (key,) = trusted_keys({**JWK, **members})
        return key.objection("ES256")

    assert objection() == objection(exp=now + 60, nbf=now - 60) == ""
    assert objection(exp=now - 1) == "has expired"
    assert objection(nbf=now + 60) == "is not valid yet"
    assert objection(revoked={"revoked_at": now - 60}) == "is revoked"


def test_a_key_that_names_an_algorithm_is_for_no_other() -> None:
    jwk = CardSigner(RSA, kid="r", algorithm="PS256").public_jwk
    (key,) = trusted_keys(jwk)

    assert key.objection("PS256") == ""
    assert key.objection("RS256") == "is not one for RS256"


@pytest.mark.parametrize("package", ["jwt", "rfc8785", "cryptography"])
@pytest.mark.parametrize(
    "made", ["CardSigner('x', kid='a')", "CardVerifier('x')"], ids=lambda made: made.partition("(")[0]
)
def test_without_its_packages_the_extra_is_named(made: str, package: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        f"from a2a_sync.signing import CardSigner, CardVerifier\n"
        f"try: {made}\n"
        f"except ImportError as error: print(error)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    assert "pip install 'a2a-sync[signing]'" in out


def test_an_app_and_a_client_that_do_not_sign_load_nothing_of_it() -> None:
    code = (
        "import sys\n"
        "from a2a_sync import A2AApp, Agent, Client\n"
        "A2AApp(Agent('a')); Client('http://127.0.0.1:1')\n"
        "print(*sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    assert not {"jwt", "cryptography", "rfc8785", "a2a_sync.signing"} & set(out.split())
