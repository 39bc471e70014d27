"""JSON Web Tokens: which are accepted, which are not, and where the keys come from."""

from __future__ import annotations

import base64
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from a2a_sync import URLGuard
from a2a_sync.auth.admission import Admission
from a2a_sync.auth.jwt_auth import JWTAuth
from a2a_sync.auth.schemes import ApiKeyAuth
from a2a_sync.errors import UnsafeURLError
from a2a_sync.operations import Principal
from tests.auth.test_admission import bearer, caller_of, served
from tests.client.peer import Asked, Line, Peer, peer
from tests.wsgi import message

ISSUER, AUDIENCE = "https://id.example.com/", "https://agent.test/"
SECRET = b"0123456789abcdef0123456789abcdef"
KEYS = {"one": rsa.generate_private_key(65537, 2048), "two": ec.generate_private_key(ec.SECP256R1())}
ALGORITHMS = {"one": "RS256", "two": "ES256"}


def pem(kid: str) -> str:
    public = KEYS[kid].public_key()
    return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()


def jwk(kid: str) -> dict[str, Any]:
    family = jwt.algorithms.RSAAlgorithm if kid == "one" else jwt.algorithms.ECAlgorithm
    return {**family.to_jwk(KEYS[kid].public_key(), as_dict=True), "kid": kid, "use": "sig", "alg": ALGORITHMS[kid]}


def token(kid: str = "one", headers: dict[str, Any] | None = None, **claims: Any) -> str:
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": time.time() + 600, **claims}
    said = {name: value for name, value in said.items() if value is not None}
    return jwt.encode(said, KEYS[kid], ALGORITHMS[kid], headers={"kid": kid, **(headers or {})})


def fixed(**options: Any) -> JWTAuth:
    return JWTAuth(**{"issuer": ISSUER, "audience": AUDIENCE, "key": pem("one"), **options})


def refusal(auth: JWTAuth, sent: str) -> str:
    with served(auth) as one:
        answer = one.call("SendMessage", message(), headers=bearer(sent))
    assert answer.status == 401, answer.body
    assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]
    text: str = answer.error["message"]
    return text


# -- what is accepted ---------------------------------------------------------------------------------------------------


def test_a_token_identifies_the_caller_and_its_scopes() -> None:
    with served(fixed(scopes=["use"])) as one:
        known = caller_of(one, bearer(token(scope="use read", email="ada@example.com")))

    assert (known["id"], known["scopes"], known["claims"]["email"]) == ("ada", ["use", "read"], "ada@example.com")


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({"scp": ["a", "b"]}, ["a", "b"]),
        ({"scp": "a b"}, ["a", "b"]),
        ({"scope": ["a", 7]}, ["a"]),
        ({"scope": 7}, []),
        ({}, []),
    ],
)
def test_scopes_are_read_in_the_ways_that_there_are(claims: dict[str, Any], scopes: list[str]) -> None:
    with served(fixed()) as one:
        assert caller_of(one, bearer(token(**claims)))["scopes"] == scopes


def by_issuer(claims: Mapping[str, Any]) -> str:
    return f"{claims['iss']}|{claims['sub']}"


def test_several_issuers_and_audiences_can_be_named() -> None:
    auth = fixed(issuer=["https://other.example.com/", ISSUER], audience=["x", AUDIENCE], identify=by_issuer)
    with served(auth) as one:
        assert caller_of(one, bearer(token(aud=["y", AUDIENCE])))["id"] == f"{ISSUER}|ada"


@pytest.mark.parametrize(
    "auth",
    [
        lambda: fixed(issuer=["https://other.example.com/", ISSUER]),
        lambda: fixed() | fixed(issuer="https://other.example.com/"),
        lambda: fixed() | (fixed(issuer="https://other.example.com/") & ApiKeyAuth({"k": "robot"}, header="X-Key")),
    ],
)
def test_equal_subjects_of_two_issuers_are_not_one_caller(auth: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="several issuers may use the same subject"):
        Admission(auth())
    other = fixed(issuer="https://other.example.com/", identify=by_issuer)
    Admission(fixed() | other | fixed(audience="another"))


def test_a_function_can_identify_the_caller() -> None:
    auth = fixed(identify=lambda claims: Principal(id=f"{claims['iss']}{claims['azp']}", scopes=("all",)))
    with served(auth) as one:
        known = caller_of(one, bearer(token(sub=None, azp="robot")))

    assert (known["id"], known["scopes"]) == (f"{ISSUER}robot", ["all"])
    assert refusal(fixed(identify=lambda claims: None), token()) == "the owner of the token is not known"


def test_a_principal_without_scopes_does_not_get_those_of_the_token() -> None:
    auth = fixed(identify=lambda claims: Principal(id=claims["sub"]))
    with served(auth) as one:
        assert caller_of(one, bearer(token(scope="tasks:write")))["scopes"] == []


def test_a_shared_secret_works_too() -> None:
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": time.time() + 600}
    with served(fixed(key=SECRET)) as one:
        assert caller_of(one, bearer(jwt.encode(said, SECRET, "HS256")))["id"] == "ada"


# -- what is not --------------------------------------------------------------------------------------------------------


def forged(**header: Any) -> str:
    """A token with the claims of a right one and a header of the forger's choice, unsigned."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": time.time() + 600}
    parts = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=").decode() for one in (header, claims)]
    return ".".join([*parts, ""])


WRONG = {
    "expired": lambda: token(exp=time.time() - 3600),
    "not yet valid": lambda: token(nbf=time.time() + 3600),
    "no expiry": lambda: token(exp=None),
    "no subject": lambda: token(sub=None),
    "subject that is no text": lambda: jwt.encode(
        {"iss": ISSUER, "aud": AUDIENCE, "sub": 7, "exp": time.time() + 600}, KEYS["one"], "RS256"
    ),
    "another audience": lambda: token(aud="https://other.test/"),
    "no audience": lambda: token(aud=None),
    "another issuer": lambda: token(iss="https://evil.example.com/"),
    "no issuer": lambda: token(iss=None),
    "another key": lambda: jwt.encode({"sub": "ada"}, rsa.generate_private_key(65537, 2048), "RS256"),
    "a key of another kind": lambda: token("two"),
    "none": lambda: forged(alg="none", typ="JWT"),
    "NONE": lambda: forged(alg="NoNe"),
    "unsigned": lambda: forged(alg="RS256"),
    "no algorithm": lambda: forged(typ="JWT"),
    "kid that is no text": lambda: forged(alg="RS256", kid=7),
    "cut": lambda: token()[:-5],
    "no token": lambda: "x.y.z",
    "one word": lambda: "token",
    "endless": lambda: token(x="y" * 20_000),
}


@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_token_is_refused(make: Any) -> None:
    assert refusal(fixed(), make())


CHECKS = {
    "expired": "exp is in the past",
    "not yet valid": "nbf or iat is in the future",
    "no expiry": "it has no exp",
    "no subject": "it has no sub",
    "subject that is no text": "sub is no text",
    "another audience": f"aud does not name {AUDIENCE}",
    "no audience": "it has no aud",
    "another issuer": f"iss is not {ISSUER}",
    "no issuer": "it has no iss",
    "another key": "the signature does not fit the key",
    "none": "alg is none of ",
    "cut": "it is malformed",
    "no token": "it is malformed",
    "endless": "more than 16384 characters",
}


@pytest.mark.parametrize("name", CHECKS)
def test_the_log_says_which_check_a_token_failed_and_the_caller_does_not_see_it(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    sent = WRONG[name]()
    public = refusal(fixed(), sent)

    (record,) = [record for record in caplog.records if "refused a caller" in record.getMessage()]
    assert record.levelname == "WARNING"
    assert f"{public} ({CHECKS[name]}" in record.getMessage()
    assert sent not in record.getMessage()
    assert CHECKS[name] not in public


def test_the_log_names_the_key_that_is_not_known(server: Peer, caplog: pytest.LogCaptureFixture) -> None:
    refusal(read_from(server), jwt.encode({"sub": "ada"}, KEYS["one"], "RS256", headers={"kid": "elsewhere"}))

    assert "(no key fits kid 'elsewhere' and alg 'RS256')" in caplog.text


def test_an_expired_token_is_called_so() -> None:
    assert refusal(fixed(), token(exp=time.time() - 3600)) == "the token has expired"


def test_a_public_key_is_never_taken_for_a_secret() -> None:
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": time.time() + 600}
    unsigned = forged(alg="HS256").rpartition(".")[0]
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(
        unsigned.encode(), pem("one").encode()
    )
    assert claims
    refusal(fixed(), unsigned + "." + base64.urlsafe_b64encode(signature).rstrip(b"=").decode())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"key": None}, "one of jwks_url= and key="),
        ({"jwks_url": "https://id.example.com/keys"}, "one of jwks_url= and key="),
        ({"key": b"short"}, "at least 32 bytes"),
        ({"key": "no pem"}, "PEM text"),
        ({"algorithms": ["none"]}, "algorithms are of"),
        ({"algorithms": ["HS256"]}, "algorithms are of"),
        ({"key": SECRET, "algorithms": ["RS256"]}, "algorithms are of"),
        ({"algorithms": []}, "algorithms are of"),
    ],
)
def test_what_cannot_be_safe_is_refused_when_it_is_made(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        fixed(**options)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(ImportError, match=r"a2a-sync\[jwt\]"):
        fixed()


# -- keys from a URL ----------------------------------------------------------------------------------------------------

LOOPBACK = URLGuard(["127.0.0.1"])


class Issuer:
    """Serves a key set; the test says which keys are in it, and may make it fail."""

    def __init__(self) -> None:
        self.kids = ["one"]
        self.extra: list[Any] = []
        self.status = 200
        self.body: bytes | None = None
        self.hold = threading.Event()
        self.hold.set()

    def __call__(self, asked: Asked, line: Line) -> None:
        self.hold.wait(120)
        line.answer(self.body or {"keys": [*self.extra, *map(jwk, self.kids)]}, self.status)


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def server(issuer: Issuer) -> Iterator[Peer]:
    with peer(issuer) as one:
        yield one


def read_from(server: Peer, **times: float) -> JWTAuth:
    auth = JWTAuth(issuer=ISSUER, audience=AUDIENCE, jwks_url=server.url + "/keys", url_guard=LOOPBACK)
    for name, seconds in times.items():
        setattr(auth._key_set, name, seconds)
    return auth


def test_keys_are_read_once_and_kept(server: Peer) -> None:
    with served(read_from(server)) as one:
        for _ in range(3):
            assert caller_of(one, bearer(token()))["id"] == "ada"

    assert [asked.path for asked in server.asked] == ["/keys"]


def test_nothing_is_read_before_the_first_token(server: Peer) -> None:
    with served(read_from(server)) as one:
        one.call("SendMessage", message())

    assert server.asked == []


def test_a_new_key_is_found_but_not_more_than_once_a_minute(server: Peer, issuer: Issuer) -> None:
    auth = read_from(server, pause=0.0)
    with served(auth) as one:
        assert caller_of(one, bearer(token()))["id"] == "ada"
        issuer.kids = ["one", "two"]
        assert caller_of(one, bearer(token("two")))["id"] == "ada"
        auth._key_set.pause = 60.0
        for number in range(5):
            refusal(auth, token(headers={"kid": f"unknown-{number}"}))

    assert len(server.asked) == 3


def test_old_keys_are_used_while_new_ones_cannot_be_read(server: Peer, issuer: Issuer) -> None:
    with served(read_from(server, refresh=0.0, pause=0.0)) as one:
        assert caller_of(one, bearer(token()))["id"] == "ada"
        issuer.status = 500
        assert caller_of(one, bearer(token()))["id"] == "ada"
        assert caller_of(one, bearer(token()))["id"] == "ada"

    assert len(server.asked) == 2, "a failed reading is followed by a pause"


def test_keys_that_have_been_taken_back_are_not_used_for_ever(server: Peer, issuer: Issuer) -> None:
    auth = read_from(server, refresh=0.0, pause=0.0)
    with served(auth) as one:
        assert caller_of(one, bearer(token()))["id"] == "ada"
        issuer.kids = ["two"]
        one.call("SendMessage", message(), headers=bearer(token()))
        refusal(auth, token())


BROKEN = {
    "an error": (500, None),
    "a redirect": (302, None),
    "no JSON": (200, b"<html>"),
    "no key set": (200, b'{"jwks": []}'),
    "a list": (200, b"[]"),
    "no keys": (200, b'{"keys": []}'),
    "only a secret": (200, json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}).encode()),
    "junk": (200, b'{"keys": [7, {"kty": "XY"}, {"kty": "RSA"}]}'),
    "too much": (200, b'{"keys": [' + b'"' + b"x" * 600_000 + b'"]}'),
}


@pytest.mark.parametrize(("status", "body"), BROKEN.values(), ids=BROKEN.keys())
def test_without_keys_every_call_is_refused_and_the_fault_is_the_servers(
    server: Peer, issuer: Issuer, status: int, body: bytes | None
) -> None:
    issuer.status, issuer.body = status, body
    with served(read_from(server)) as one:
        answers = [one.call("SendMessage", message(), headers=bearer(token())) for _ in range(3)]

    assert {answer.status for answer in answers} == {503}
    assert answers[0].headers["Retry-After"] == "10"
    assert len(server.asked) == 1, "a failed reading is followed by a pause"


def test_what_is_not_understood_in_a_key_set_is_passed_over(server: Peer, issuer: Issuer) -> None:
    issuer.extra = [
        7,
        {"kty": "XY"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "one"},
        {**jwk("two"), "use": "enc"},
        {**jwk("two"), "alg": ["ES256"]},
    ]
    with served(read_from(server)) as one:
        assert caller_of(one, bearer(token()))["id"] == "ada"
        assert one.call("SendMessage", message(), headers=bearer(token("two"))).status == 401


def test_the_members_of_a_private_key_in_a_key_set_are_not_read(server: Peer, issuer: Issuer) -> None:
    # The primes of such a key would be computed from its exponents, while no other thread runs: for minutes with 32,768 bits.
    number = base64.urlsafe_b64encode(b"\xff" * 4096).decode()
    issuer.extra = [{"kty": "RSA", "n": number, "e": "AQAB", "d": number, "kid": "slow"}]
    with served(read_from(server)) as one:
        began = time.thread_time()
        assert caller_of(one, bearer(token()))["id"] == "ada"
        assert time.thread_time() - began < 5


def test_a_key_is_valid_until_a_time_of_any_size(server: Peer, issuer: Issuer) -> None:
    issuer.kids = ["two"]
    issuer.extra = [{**jwk("one"), "exp": 10**400, "nbf": -(10**400)}]
    with served(read_from(server)) as one:
        assert caller_of(one, bearer(token()))["id"] == "ada"


@pytest.mark.parametrize(
    "said",
    [{"exp": 1.0}, {"nbf": 4e9}, {"revoked": {}}, {"key_ops": ["encrypt"]}, {"alg": "RS512"}, {"kid": "two"}],
    ids=["expired", "not valid yet", "revoked", "for something else", "for another algorithm", "of another name"],
)
def test_a_key_counts_only_for_what_its_set_says_of_it(server: Peer, issuer: Issuer, said: dict[str, Any]) -> None:
    issuer.kids = ["two"]
    issuer.extra = [{**jwk("one"), **said}]
    assert "a key that is not known here" in refusal(read_from(server), token())


def test_a_key_without_a_name_is_good_for_every_name(server: Peer, issuer: Issuer) -> None:
    issuer.kids = []
    issuer.extra = [{name: value for name, value in jwk("one").items() if name != "kid"}]
    with served(read_from(server)) as one:
        assert caller_of(one, bearer(token()))["id"] == "ada"


def test_a_token_that_names_no_key_is_tried_with_all(server: Peer, issuer: Issuer) -> None:
    issuer.kids = ["one", "two"]
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": time.time() + 600}
    with served(read_from(server)) as one:
        assert caller_of(one, bearer(jwt.encode(claims, KEYS["two"], "ES256")))["id"] == "ada"


@pytest.mark.parametrize("url", ["http://id.example.com/keys", "https://u:p@id.example.com/keys", "file:///keys", ""])
def test_a_url_for_keys_is_judged_when_it_is_given(url: str) -> None:
    with pytest.raises(UnsafeURLError):
        JWTAuth(issuer=ISSUER, audience=AUDIENCE, jwks_url=url)


def test_the_host_that_is_named_for_keys_may_be_in_the_own_network() -> None:
    JWTAuth(issuer=ISSUER, audience=AUDIENCE, jwks_url="https://keycloak:8443/certs")


def test_forged_tokens_do_not_hold_threads_while_an_issuer_hangs(server: Peer, issuer: Issuer) -> None:
    issuer.hold.clear()
    forged = token("two", headers={"kid": "forged"})
    refused, answers = threading.Semaphore(0), []

    with served(read_from(server)) as one:

        def call() -> None:
            answers.append(one.call("SendMessage", message(), headers=bearer(forged)))
            refused.release()

        callers = [threading.Thread(target=call, daemon=True) for _ in range(32)]
        for caller in callers:
            caller.start()
        # All but the one that reads the keys are answered while the issuer still hangs.
        for _ in range(31):
            assert refused.acquire(timeout=60), "a forged token holds a thread"
        assert not refused.acquire(blocking=False)
        issuer.hold.set()
        for caller in callers:
            caller.join(60)

    assert [answer.status for answer in answers[:31]] == [503] * 31
    assert answers[31].status == 401
    assert {answer.headers["Retry-After"] for answer in answers[:31]} == {"1"}
    assert len(server.asked) == 1
