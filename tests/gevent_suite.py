"""The test suite with a standard library that gevent has patched: ``python -m tests.gevent_suite [ARGUMENTS]``.

The arguments are pytest's. All tests that work inside this process are run; `LEFT_OUT` lists the others with the reason.
`tests/gevent` runs only here.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import gc  # noqa: E402
import sys  # noqa: E402
from collections.abc import Generator  # noqa: E402

import pytest  # noqa: E402

#: The start of a test's id, and why the test does not apply here.
LEFT_OUT = {
    "tests/agent/test_agent.py::test_async_handlers_run_on_the_thread_of_their_event_loop": "the thread has another name under gevent",
    "tests/agent/test_asynchronous.py::test_a_loop_inside_a_loop_gets_a_thread_of_its_own": "under gevent it is a thread of a pool",
    "tests/agent/test_asynchronous.py::test_async_handlers_run_side_by_side_under_gevent": "starts a patched process itself",
    "tests/engine/test_hub.py::test_a_queue_that_was_emptied_in_the_moment": "replaces a method, which gevent's queues forbid",
    "tests/faults/test_grpc.py": "gRPC does not work in a patched process, and is refused there",
    "tests/hostile/test_one_caller.py::test_canceled_async_runs_of_one_caller_leave_threads_to_another[to_thread]": (
        "native threads have no limit under gevent, and its events do not work on them"
    ),
    "tests/servers/test_worker_requests.py::test_responses_that_are_continued_all_the_time": (
        "a response that is continued without any wait never leaves its greenlet"
    ),
    "tests/grpc": "gRPC does not work in a patched process, and is refused there",
    "tests/hostile/test_grpc.py": "gRPC does not work in a patched process, and is refused there",
    "tests/mutants": "starts other processes",
    "tests/stores/test_contexts.py": "starts other processes",
    **dict.fromkeys(
        ("tests/card/", "tests/codec/", "tests/signing/", "tests/test_jsontext.py", "tests/test_types.py"),
        "computes without threads, locks or sockets",
    ),
    "tests/conformance/": "the protocol of the scenarios, without concurrency, in a thousand variants",
    "tests/console/test_snippets.py": "starts other processes",
    **dict.fromkeys(
        ("tests/hostile/test_fuzz", "tests/hostile/test_many_urls.py", "tests/hostile/test_signed_cards.py"),
        "thousands of random inputs, one after the other, without concurrency",
    ),
    "tests/cli/": "commands are processes of their own",
    **dict.fromkeys(
        (
            "tests/examples/",
            "tests/test_docs.py",
            "tests/test_exports.py",
            "tests/test_frozen.py",
            "tests/test_later_features.py",
            "tests/test_layers.py",
            "tests/test_limits.py",
            "tests/test_reference.py",
            "tests/test_suites.py",
            "tests/test_troubleshooting.py",
            "tests/test_words.py",
            "tests/typing/",
        ),
        "reads source code or documentation, which is the same",
    ),
}
#: Markers of tests that start other processes, which are not patched. The ordinary run covers servers with gevent workers.
LEFT_OUT_MARKS = {"live"}


class Selection:
    """Deselects the tests of `LEFT_OUT` and `LEFT_OUT_MARKS`."""

    left_out = 0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        # pytest parses the source of a failed test. CPython 3.11 raises a SystemError if a finaliser switches greenlets meanwhile.
        gc.disable()
        try:
            return (yield)
        finally:
            gc.enable()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        unknown = set(LEFT_OUT) - {start for start in LEFT_OUT for item in items if item.nodeid.startswith(start)}
        assert not unknown or config.args != [*config.getini("testpaths")], f"LEFT_OUT names no test: {unknown}"
        kept = [item for item in items if not _is_left_out(item)]
        self.left_out = len(items) - len(kept)
        items[:] = kept

    def pytest_report_collectionfinish(self) -> str:
        return f"{self.left_out} tests do not apply in a patched process (see LEFT_OUT)"


def _is_left_out(item: pytest.Item) -> bool:
    marked = any(item.get_closest_marker(mark) for mark in LEFT_OUT_MARKS)
    return marked or item.nodeid.startswith(tuple(LEFT_OUT))


if __name__ == "__main__":
    ignored = [
        f"--ignore=tests/{name}"
        for name in ("interop", "interop03", "interopjs", "frameworks", "crewai", "benchmarks", "browser", "services")
        if not any(argument.startswith(f"tests/{name}") for argument in sys.argv)
    ]
    # A greenlet that never yields is not interrupted by the limit of a test: its stack is printed, and the run ends.
    limits = ["-o", "faulthandler_timeout=400", "-o", "faulthandler_exit_on_timeout=true"]
    sys.exit(pytest.main(["-p", "no:cacheprovider", *limits, *ignored, *sys.argv[1:]], plugins=[Selection()]))
