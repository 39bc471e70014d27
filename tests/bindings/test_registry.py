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
    assert issubclass(binding.load_endpoint(), WireEndpoint)
    assert callable(binding.load_service().respond)


def test_interface_urls_are_those_of_the_card() -> None:
    assert BINDINGS["JSONRPC"].interface_url("https://agent.example/a/") == "https://agent.example/a/"
    assert BINDINGS["HTTP+JSON"].interface_url("https://agent.example/a/") == "https://agent.example/a"


def test_the_newest_version_is_preferred_and_in_it_the_first_binding() -> None:
    assert supported() == [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "0.3")]


def test_reading_the_registry_loads_neither_half() -> None:
    code = (
        "import sys, a2a_sync.bindings.registry\n"
        "loaded = {name.split('.')[1] for name in sys.modules if name.startswith('a2a_sync.')}\n"
        "assert not loaded & {'client', 'wsgi', 'server'}, loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
