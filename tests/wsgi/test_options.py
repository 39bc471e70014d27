"""`HTTPOptions`: mistakes are refused when they are made."""

from __future__ import annotations

from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, AgentHost, HTTPOptions


@pytest.mark.parametrize("name", ["trusted_hosts", "cors_origins"])
def test_one_string_in_place_of_a_list_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} takes a list"):
        HTTPOptions(**{name: "agents.example"})


def test_a_negative_number_of_proxies_is_refused() -> None:
    with pytest.raises(ValueError, match="number of proxies"):
        HTTPOptions(trusted_proxies=-1)


@pytest.mark.parametrize("make", [lambda http: A2AApp(Agent("x"), http=http), lambda http: AgentHost(http=http)])
def test_options_of_another_type_are_refused(make: Any) -> None:
    with pytest.raises(TypeError, match="http takes HTTPOptions"):
        make({"trusted_proxies": 1})


def test_an_iterator_of_origins_can_be_read_more_than_once() -> None:
    options = HTTPOptions(cors_origins=(origin for origin in ["https://page.example"]))
    assert list(options.cors_origins) == list(options.cors_origins) == ["https://page.example"]
