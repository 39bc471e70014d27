"""The registry of bindings: each row leads to the two halves of a binding, and nothing is loaded before it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from a2a_sync.bindings.registry import BINDINGS, supported
from a2a_sync.client.endpoint import WireEndpoint


@pytest.mark.parametrize("name", BINDINGS)
def test_a_row_leads_to_both_halves_of_its_binding(name: str) -> None:
    binding = BINDINGS[name]
    assert binding.name == name == name.upper()
    if binding.extra:
        pytest.importorskip(binding.extra, reason=f"needs the extra {binding.extra}, which `make test` installs")
    assert issubclass(binding.load_endpoint(), WireEndpoint)
    if binding.service:
        assert callable(binding.load_service().respond)


def test_interface_urls_are_those_of_the_card() -> None:
    assert BINDINGS["JSONRPC"].interface_url("https://agent.example/a/") == "https://agent.example/a/"
    assert BINDINGS["HTTP+JSON"].interface_url("https://agent.example/a/") == "https://agent.example/a"


def test_the_newest_version_is_preferred_and_in_it_the_first_binding() -> None:
    assert supported() == [(name, version) for version in ("1.0", "0.3") for name in ("JSONRPC", "HTTP+JSON", "GRPC")]


def test_addresses_of_grpc_are_read_as_urls() -> None:
    read = BINDINGS["GRPC"].read_url
    assert read("https://agent.example/a", "agent.example:443") == "https://agent.example:443"
    assert read("http://agent.example/a", "10.0.0.1:50051") == "http://10.0.0.1:50051"
    assert read("", "grpc://[::1]:50051") == "http://[::1]:50051"
    assert read("http://agent.example/a", "grpcs://other.example:50051") == "https://other.example:50051"
    assert read("http://agent.example/a", "https://other.example:50051") == "https://other.example:50051"


def test_a_binding_without_its_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2a_sync.bindings.registry.patched", lambda: False)
    monkeypatch.setattr("a2a_sync.bindings.registry.find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "grpc", raising=False)
    assert BINDINGS["GRPC"].unavailable_reason == "GRPC needs more packages: pip install 'a2a-sync[grpc]'"
    assert not BINDINGS["JSONRPC"].unavailable_reason


def test_under_gevent_a_binding_with_native_threads_is_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2a_sync.bindings.registry.patched", lambda: True)
    assert "gevent" in BINDINGS["GRPC"].unavailable_reason


def test_reading_the_registry_loads_neither_half() -> None:
    code = (
        "import sys, a2a_sync.bindings.registry\n"
        "loaded = {name.split('.')[1] for name in sys.modules if name.startswith('a2a_sync.')}\n"
        "assert not loaded & {'client', 'wsgi', 'server'}, loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
