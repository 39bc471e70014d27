"""The sections of the suite, in the order of the requirements. Importing this module fills them."""

from __future__ import annotations

import importlib

from tests.conformance.suite import A, B, C, D, E, F, G, H, Section

for _module in (
    "encoding",
    "sending",
    "listing",
    "streams",
    "offers",
    "webhooks",
    "deliveries",
    "signatures",
    "bindings",
    "grpc_binding",
    "errors",
    "access",
    "clients",
    "client_streams",
    "receivers",
    "v03",
    "v03_streams",
    "v03_offers",
    "v03_rest",
    "clients_v03",
    "both",
):
    importlib.import_module(f"tests.conformance.{_module}")

SECTIONS: tuple[Section, ...] = (A, B, C, D, E, F, G, H)
