"""The simulation of very many processes, and the model of what they need."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.benchmarks.capacity import HOSTS, RECORDED, Load, Needs
from tests.benchmarks.simulation import Outcome, Setup, Simulation
from tests.live import ROOT


def simulate(processes: int) -> Outcome:
    return Simulation(Setup(processes=processes, seconds=20.0)).run()


def test_no_process_costs_more_statements_or_messages_because_there_are_others() -> None:
    few, many = simulate(100), simulate(3_000)
    assert many.statements_per_process == pytest.approx(few.statements_per_process, rel=0.05)
    assert many.messages_per_append == pytest.approx(few.messages_per_append, rel=0.05)


def test_every_dead_process_is_taken_over_once_within_three_heartbeats() -> None:
    outcome = simulate(3_000)
    assert outcome.claims == len(outcome.take_overs) == 30
    assert max(outcome.take_overs) <= 3 * outcome.setup.beat + 1


def test_an_event_whose_message_was_lost_is_found_by_the_next_poll() -> None:
    outcome = simulate(1_000)
    assert outcome.sent > outcome.received
    assert outcome.setup.poll / 2 < max(outcome.delays) <= outcome.setup.poll + 0.01


def test_background_work_grows_with_the_number_of_hosts_and_that_of_notify_with_its_square() -> None:
    needs = [Needs(hosts, Load(), RECORDED) for hosts in HOSTS]
    for fewer, more in itertools.pairwise(needs):
        times = more.hosts / fewer.hosts
        assert more.background_cores() <= 1.01 * times * fewer.background_cores()
        assert more.notify_cores() > times * fewer.notify_cores()


def test_the_page_shows_what_the_model_and_the_simulation_say() -> None:
    page = Path(ROOT, "docs/explanation/scale.md").read_text()
    rows = [Needs(hosts, Load(), RECORDED).row() for hosts in HOSTS]
    rows += [Simulation(Setup(processes=processes)).run().row() for processes in (10, 100, 1_000)]
    assert [row for row in rows if row not in page] == []
