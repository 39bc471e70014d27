"""The tests once more, with a standard library that gevent has patched: ``python -m tests.gevent_suite [ARGUMENTS]``.

The arguments are pytest's. Everything is run that runs in this process; what is left out, and why, is said in `LEFT_OUT`.
`tests/gevent` is run here only.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import sys  # noqa: E402

import pytest  # noqa: E402

#: The beginning of a test's id, and why the test says nothing here.
LEFT_OUT = {
    "tests/test_agent.py::test_async_handlers_run_on_the_thread_of_their_event_loop": "that thread has another name here",
    "tests/test_asynchronous.py::test_a_loop_inside_a_loop_gets_a_thread_of_its_own": "here that is a thread of a pool",
    "tests/test_asynchronous.py::test_async_handlers_run_side_by_side_under_gevent": "starts a patched process of its own",
    "tests/test_events.py::test_a_queue_that_was_emptied_in_the_moment": "replaces a method, which gevent's queues forbid",
    "tests/stores/test_contexts.py": "starts processes of its own",
    "tests/test_layers.py": "reads the sources, which are the same",
    "tests/test_docs.py::test_a_page_that_is_wrong_is_found_out": "tests the tests",
}
#: Marks of tests that do their work in processes of their own, which nothing here has patched. Servers with gevent's
#: workers are among those that the ordinary run starts.
LEFT_OUT_MARKS = {"live"}


class Selection:
    """Takes out what is left out."""

    left_out = 0

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        unknown = set(LEFT_OUT) - {start for start in LEFT_OUT for item in items if item.nodeid.startswith(start)}
        assert not unknown or config.args != [*config.getini("testpaths")], f"LEFT_OUT names no test: {unknown}"
        kept = [item for item in items if not _is_left_out(item)]
        self.left_out = len(items) - len(kept)
        items[:] = kept

    def pytest_report_collectionfinish(self) -> str:
        return (
            f"{self.left_out} tests say nothing in a patched process (see LEFT_OUT) and are for the ordinary run only"
        )


def _is_left_out(item: pytest.Item) -> bool:
    marked = any(item.get_closest_marker(mark) for mark in LEFT_OUT_MARKS)
    return marked or item.nodeid.startswith(tuple(LEFT_OUT))


if __name__ == "__main__":
    # A time limit kept by a thread would be kept by a greenlet here, which whatever hangs would not let come.
    limits = ["-o", "timeout_method=signal", "-p", "no:cacheprovider"]
    ignored = [f"--ignore=tests/{name}" for name in ("interop", "interop03", "interopjs", "frameworks", "benchmarks")]
    sys.exit(pytest.main([*limits, *ignored, *sys.argv[1:]], plugins=[Selection()]))
