"""Look-ahead over recording fakes: how far ahead, in what order, when errors come, and what the recent chunk keeps."""

from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrows._prefetch import Recent
from lazyrows._prefetch import prefetch as _p


def prefetch(plan, fetch, depth):
    return _p(plan, lambda piece: piece, fetch, depth)


LENGTHS = st.integers(0, 12)
DEPTHS = st.integers(0, 5)


class Unreadable(Exception):
    """What a fake raises instead of fetching."""


@dataclass
class Recorder:
    """Fetches `piece` as ("chunk", piece), remembering what was asked for; refuses some."""

    refused: frozenset = frozenset()
    asked: list = field(default_factory=list)

    def __call__(self, piece):
        self.asked.append(piece)
        if piece in self.refused:
            raise Unreadable(piece)
        return "chunk", piece


@given(LENGTHS, DEPTHS)
def test_chunks_come_in_the_order_of_the_plan_each_fetched_once(length, depth):
    fetch = Recorder()
    assert list(prefetch(range(length), fetch, depth)) == [("chunk", piece) for piece in range(length)]
    assert fetch.asked == list(range(length))


@given(LENGTHS, DEPTHS)
def test_nothing_is_fetched_or_planned_before_it_is_asked_for(length, depth):
    fetch, planned = Recorder(), []
    chunks = prefetch((planned.append(piece) or piece for piece in range(length)), fetch, depth)
    assert fetch.asked == planned == []
    next(chunks, None)
    assert fetch.asked == planned == list(range(min(length, 1 + depth)))


@given(LENGTHS, DEPTHS)
def test_each_chunk_comes_with_depth_ahead(length, depth):
    fetch = Recorder()
    for delivered, _ in enumerate(prefetch(range(length), fetch, depth), start=1):
        assert len(fetch.asked) == min(length, delivered + depth)


@given(DEPTHS)
def test_an_endless_plan_is_taken_only_as_far_as_wanted(depth):
    fetch = Recorder()
    chunks = prefetch(count(), fetch, depth)
    assert [next(chunks) for _ in range(3)] == [("chunk", piece) for piece in range(3)]
    assert len(fetch.asked) == 3 + depth


@given(st.integers(1, 12), DEPTHS, st.data())
def test_an_error_comes_at_its_turn_after_all_chunks_before_it(length, depth, data):
    bad = data.draw(st.integers(0, length - 1))
    chunks = prefetch(range(length), Recorder(frozenset({bad})), depth)
    assert [next(chunks) for _ in range(bad)] == [("chunk", piece) for piece in range(bad)]
    with pytest.raises(Unreadable) as raised:
        next(chunks)
    assert raised.value.args == (bad,)


@given(st.integers(1, 12), DEPTHS, st.data())
def test_after_an_error_or_the_end_the_iterator_is_exhausted_for_ever(length, depth, data):
    fetch = Recorder(frozenset(data.draw(st.sets(st.integers(0, length - 1), max_size=2))))
    chunks = prefetch(range(length), fetch, depth)
    with suppress(Unreadable):
        list(chunks)
    asked = list(fetch.asked)
    assert [next(chunks, "end") for _ in range(3)] == ["end"] * 3
    assert fetch.asked == asked


def test_the_first_of_two_errors_looked_ahead_at_is_the_one_raised():
    chunks = prefetch(range(5), Recorder(frozenset({2, 3})), 4)
    assert [next(chunks), next(chunks)] == [("chunk", 0), ("chunk", 1)]
    with pytest.raises(Unreadable, match="2"):
        next(chunks)


@pytest.mark.parametrize("error", [IndexError, StopAsyncIteration, KeyError])
def test_an_error_met_ahead_is_raised_itself_and_shows_where_it_arose(error):
    raised_by_fetch = error("position 2")

    def fetch(piece):
        if piece == 2:
            raise raised_by_fetch
        return piece

    chunks = prefetch(range(4), fetch, 3)
    assert [next(chunks), next(chunks)] == [0, 1]
    with pytest.raises(error) as raised:
        next(chunks)
    assert raised.value is raised_by_fetch
    assert raised.traceback[-1].name == "fetch"


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_not_kept_for_later(interrupt):
    def fetch(piece):
        if piece == 3:
            raise interrupt
        return piece

    chunks = prefetch(range(9), fetch, 2)
    assert next(chunks) == 0
    with pytest.raises(interrupt):
        next(chunks)


def test_an_error_in_the_plan_is_raised():
    def plan():
        yield 0
        raise Unreadable("plan")

    chunks = prefetch(plan(), Recorder(), 0)
    assert next(chunks) == ("chunk", 0)
    with pytest.raises(Unreadable, match="plan"):
        next(chunks)


# ---- the recent chunk


@dataclass
class FakeBlock:
    """Rows of one chunk, `step` at a time; every row made is a new list, so that `is` tells them apart."""

    first: int
    size: int
    step: int
    made: list

    def rows(self, start):
        rows = [[self.first + place] for place in range(start, min(start + self.step, self.size))]
        self.made.append(self.first + start)
        return rows


@dataclass
class FakeSource:
    """Rows and blocks, counted; `context` may be set to anything."""

    size: int
    step: int
    context: object = "one"
    kept: bool = True
    single: list = field(default_factory=list)
    fetched: list = field(default_factory=list)
    exploded: list = field(default_factory=list)

    def recent(self):
        return Recent(self.row, self.fetch, self.size, lambda: self.context, lambda row: not self.kept).row

    def row(self, position):
        self.single.append(position)
        return [position]

    def fetch(self, number):
        self.fetched.append(number)
        return FakeBlock(number * self.size, self.size, self.step, self.exploded)


SOURCES = st.builds(FakeSource, st.integers(1, 9), st.integers(1, 4))
WALKS = st.lists(st.integers(0, 30), max_size=30)


@given(SOURCES, WALKS)
def test_the_row_asked_for_is_the_row_given(source, walk):
    row = source.recent()
    assert [row(position) for position in walk] == [[position] for position in walk]


@given(SOURCES, WALKS)
def test_a_row_is_made_for_one_caller_alone(source, walk):
    row = source.recent()
    given_out = [row(position) for position in walk]
    assert len({id(each) for each in given_out}) == len(walk)


@given(SOURCES, WALKS)
def test_the_first_row_of_a_chunk_is_made_alone_and_the_second_fetches_the_chunk_once(source, walk):
    row = source.recent()
    for position in walk:
        row(position)
    numbers = [position // source.size for position in walk]
    runs = [numbers[k - 1 : k] != numbers[k : k + 1] for k in range(len(walk))]
    assert source.single == [position for position, first in zip(walk, runs, strict=True) if first]
    second = [k for k in range(1, len(walk)) if not runs[k] and runs[k - 1]]
    assert source.fetched == [numbers[k] for k in second]


@given(SOURCES)
def test_a_chunk_walked_through_is_exploded_once_for_each_step(source):
    row = source.recent()
    for position in (0, *range(source.size)):
        row(position)
    assert source.exploded == list(range(0, source.size, source.step))


@given(SOURCES, st.integers(2, 5))
def test_a_row_asked_for_again_is_made_anew(source, times):
    row = source.recent()
    given_out = [row(0) for _ in range(times)]
    given_out[-1].append("spoiled by its owner")
    assert row(0) == [0]
    assert len(source.exploded) == times


@given(SOURCES, st.lists(st.sampled_from("ab"), min_size=1, max_size=12))
def test_a_chunk_is_fetched_again_where_its_context_has_changed(source, contexts):
    row = source.recent()
    row(0)
    for source.context in contexts:
        row(0)
    changes = 1 + sum(old != new for old, new in pairwise(contexts))
    assert len(source.fetched) == changes


@given(SOURCES, st.integers(1, 6))
def test_rows_that_may_not_be_kept_never_are(source, times):
    source.kept = False
    row = source.recent()
    for _ in range(1 + times):
        row(0)
    assert source.fetched == [0] * times
    source.kept = True
    row(0)
    assert source.fetched == [0] * (times + 1)


def test_a_chunk_that_could_not_be_fetched_is_tried_again():
    source, fetch = FakeSource(4, 2), Recorder(frozenset({0}))
    row = Recent(source.row, fetch, 4, lambda: None, lambda _: False).row
    assert row(0) == [0]
    for times in (1, 2):
        with pytest.raises(Unreadable):
            row(1)
        assert fetch.asked == [0] * times
