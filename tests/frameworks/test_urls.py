"""URLs in the files of callers: what the bridges let their frameworks and the providers of models fetch."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from a2a_sync import FilePart

WEB = "https://example.com/file"
#: The modules, and whether a framework or provider is given web addresses at all: LlamaIndex would fetch them itself, unchecked.
ADAPTERS = {
    "adk": ("to_adk_part", True),
    "pydantic_ai": ("_content", True),
    "agent_framework": ("_content", True),
    "openai_agents": ("_content", True),
    "strands": ("_content", False),
    "llamaindex": ("_block", False),
}
PACKAGES = {"adk": "google.adk", "openai_agents": "agents", "llamaindex": "llama_index.core"}
TYPES = ["image/png", "audio/wav", "video/mp4", "application/pdf", "text/plain", ""]


@pytest.fixture(params=ADAPTERS)
def adapter(request: pytest.FixtureRequest) -> tuple[Any, bool]:
    pytest.importorskip(PACKAGES.get(request.param, request.param))
    name, web = ADAPTERS[request.param]
    return getattr(import_module(f"a2a_sync.integrations.{request.param}"), name), web


def is_text(content: Any) -> bool:
    if hasattr(content, "file_data"):  # a part of the Google ADK has all members
        return content.text is not None
    if isinstance(content, dict):
        return "text" in content
    return isinstance(content, str) or getattr(content, "block_type", getattr(content, "type", "")) == "text"


def shown(content: Any) -> str:
    return f"{content} {getattr(content, 'text', '')} {getattr(content, 'uri', '')}"


@pytest.mark.parametrize("url", ["gs://bucket/secret", "s3://bucket/secret", "file:///etc/passwd", "/etc/passwd"])
@pytest.mark.parametrize("media_type", TYPES)
def test_an_address_that_is_no_web_address_is_text(adapter: tuple[Any, bool], media_type: str, url: str) -> None:
    convert, _ = adapter
    content = convert(FilePart(url=url, media_type=media_type))
    assert is_text(content)
    assert url in shown(content)


@pytest.mark.parametrize("media_type", TYPES)
def test_a_web_address_is_text_where_the_framework_would_fetch_it(adapter: tuple[Any, bool], media_type: str) -> None:
    convert, web = adapter
    content = convert(FilePart(url=WEB, media_type=media_type))
    assert is_text(content) is not web
    assert WEB in shown(content)
