"""Tests of the search index of every store. Each test checks one sentence of the port's docstrings."""

import errno
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.core.doubles import START_MS, BrokerHarness, content
from tests.stores.postgres_server import postgres_search, postgres_store
from tieline.contract import command as c
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.limits import DEFAULT_LIMITS, Limits
from tieline.contract.member import Unnamed
from tieline.contract.message import Signature
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Attached, ObjectiveState, Redaction
from tieline.core.outcome import Deferred
from tieline.core.search_query import SearchIndex, SearchQuery, Term, parse
from tieline.core.store import DiskError, Store, StoreError
from tieline.stores.sqlite import SqliteSearch, SqliteStore
from tieline.stores.sqlite.search import SEARCH_FILE

FORGETFUL = Limits(retention_ms=1000)


class Library:
    """Test helper with a broker harness and a search index over its store."""

    def __init__(
        self, open_store: Callable[[], Store], open_index: Callable[[], SearchIndex], limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self.harness = BrokerHarness(open_store, limits)
        self._open_index = open_index
        self.index = open_index()

    def reopen(self) -> None:
        self.index.close()
        self.index = self._open_index()

    def find(self, session: SessionId, query: str, **narrow: Any) -> list[str]:
        """Return the bodies of the messages that a session finds. `narrow` are other fields of the search."""
        self.harness.decide(c.Search(session, query=query, **narrow))
        (deferred,) = self.harness.outcome.replies
        assert isinstance(deferred, Deferred)
        assert isinstance(deferred.work, SearchQuery)
        return [message.content.body for message in self.index.find(deferred.work)]


def sqlite(folder: Path, limits: Limits) -> Library:
    return Library(lambda: SqliteStore(folder, synchronous="OFF"), lambda: SqliteSearch(folder), limits)


def postgres(folder: Path, limits: Limits) -> Library:
    return Library(lambda: postgres_store(folder), lambda: postgres_search(folder), limits)


@pytest.fixture(params=[sqlite, pytest.param(postgres, marks=pytest.mark.slow)], ids=["sqlite", "postgres"])
def make_library(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[Limits], Library]]:
    made: list[Library] = []

    def make(limits: Limits) -> Library:
        made.append(request.param(tmp_path, limits))
        return made[-1]

    yield make
    for library in made:
        library.index.close()
        library.harness.store.close()


@pytest.fixture
def library(make_library: Callable[[Limits], Library]) -> Library:
    return make_library(DEFAULT_LIMITS)


# Search results.


def test_all_words_must_be_there_and_the_newest_comes_first(library: Library) -> None:
    ada, _ = library.harness.join("ada"), library.harness.join("bob")
    for body in ("the red fox", "the red hen", "a fox, all RED", "a dog"):
        library.harness.send(ada, "@bob", body)
    assert library.find(ada, "red fox") == ["a fox, all RED", "the red fox"]
    assert library.find(ada, "cow") == []


def test_a_phrase_a_beginning_a_title_and_letters_with_accents_are_found(library: Library) -> None:
    ada, _ = library.harness.join("ada"), library.harness.join("bob")
    library.harness.send(ada, "@bob", "deploy to the naïve cluster", title="Release notes")
    assert library.find(ada, '"the naive cluster"') == ["deploy to the naïve cluster"]
    assert library.find(ada, '"cluster the"') == []
    assert library.find(ada, "clus*") == library.find(ada, "release") == ["deploy to the naïve cluster"]
    assert library.find(ada, "clus") == []


@pytest.mark.parametrize(
    "query", ["fox) OR (dog", "a'; DROP TABLE said; --", 'fox" AND "dog', "NEAR(fox dog)", "body:fox", "-fox", "fox^2"]
)
def test_a_query_is_words_and_nothing_else(library: Library, query: str) -> None:
    ada, _ = library.harness.join("ada"), library.harness.join("bob")
    library.harness.send(ada, "@bob", "a fox")
    library.harness.send(ada, "@bob", "a dog")
    assert library.find(ada, query) in ([], ["a fox"])


def test_a_query_without_a_word_is_refused(library: Library) -> None:
    ada = library.harness.join("ada")
    for query in ("", "  ", "** --", "😀", "x" * 1001):
        assert library.harness.refused(c.Search(ada, query=query)).code is Code.INVALID_REQUEST


def test_it_is_narrowed_by_sender_peer_thread_and_time(library: Library) -> None:
    harness = library.harness
    ada, bob, _ = harness.join("ada"), harness.join("bob"), harness.join("cy")
    harness.send(ada, "@bob", "note 1", thread="t")
    harness.pass_ms(10)
    first = harness.send(bob, "@ada", "note 2")
    harness.pass_ms(10)
    harness.send(ada, "@cy", "note 3", reply_to=first.message_id)
    assert library.find(ada, "note", sender="bob") == ["note 2"]
    assert library.find(ada, "note", place="@bob") == ["note 2", "note 1"]
    assert library.find(ada, "note", place="t") == ["note 1"]
    assert library.find(ada, "note", place=first.message_id) == ["note 3"]
    assert library.find(ada, "note", from_ms=START_MS + 10) == ["note 3", "note 2"]
    assert library.find(ada, "note", to_ms=START_MS + 10) == ["note 2", "note 1"]
    assert library.find(ada, "note", limit=1) == ["note 3"]
    assert library.find(ada, "note", before=first.offset) == ["note 1"]


def test_the_terms_of_a_query() -> None:
    assert parse('red "big fox" sta*') == (Term("red"), Term("big fox"), Term("sta", prefix=True))
    assert isinstance(parse('""'), Refusal)


# For whom.


def test_a_member_finds_what_it_sent_and_was_sent_and_nothing_of_others(library: Library) -> None:
    harness = library.harness
    ada, bob, eve = harness.join("ada"), harness.join("bob"), harness.join("eve")
    harness.send(ada, "@bob", "secret one")
    harness.send(bob, "@ada", "secret two")
    harness.send(eve, "@eve", "secret mine")
    assert library.find(ada, "secret") == library.find(bob, "secret") == ["secret two", "secret one"]
    assert library.find(eve, "secret") == ["secret mine"]
    assert library.find(eve, "secret", place="@ada") == []
    assert library.find(harness.operator, "secret") == ["secret mine", "secret two", "secret one"]


def test_who_joins_later_does_not_find_what_a_former_member_of_its_name_was_told(library: Library) -> None:
    harness = library.harness
    ada, _ = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob", "secret")
    harness.remove("bob")
    assert library.find(harness.join("bob"), "secret") == []


def test_channels_are_searched_by_who_is_in_them(library: Library) -> None:
    harness = library.harness
    ada, bob, eve = harness.join("ada"), harness.join("bob"), harness.join("eve")
    for session in (ada, bob):
        harness.subscribe(session, "dev")
    harness.send(ada, "#dev", "plan in dev")
    harness.send(ada, "*", "plan for all")
    assert library.find(bob, "plan") == ["plan for all", "plan in dev"]
    assert library.find(eve, "plan") == ["plan for all"]
    assert library.find(bob, "plan", place="#dev") == ["plan in dev"]
    assert library.find(eve, "plan", place="#dev") == []


def test_the_thread_of_an_objective_is_searched_by_who_has_a_part_in_it(library: Library) -> None:
    harness = library.harness
    ada, bob, eve = harness.join("ada", "objectives.create"), harness.join("bob"), harness.join("eve")
    create = c.CreateObjective(session=ada, title="t", outcome="o", assignee=MemberName("bob"))
    place = f"obj:{harness.expect(ObjectiveState, create).objective.id}"
    harness.send(bob, place, "progress report")
    assert library.find(ada, "progress") == library.find(bob, "progress", place=place) == ["progress report"]
    assert library.find(eve, "progress") == library.find(eve, "progress", place=place) == []


def test_what_is_signed_badly_is_found_by_its_own_protocol_alone(library: Library) -> None:
    harness = library.harness
    ada, token = harness.join("ada"), harness.add("bob")
    harness.expect(Accepted, c.Send(ada, content=content("@bob", "forged"), signature=Signature.FAILED))
    assert library.find(harness.attach_by_token(token, "elsewhere"), "forged") == []
    assert library.find(harness.attach_by_token(token, "hub"), "forged") == ["forged"]


def test_somebody_without_an_identity_may_not_search(library: Library) -> None:
    attach = c.Attach(protocol="agent-channels", credential=Unnamed("client-0", "general"))
    stranger = library.harness.expect(Attached, attach).session
    assert library.harness.refused(c.Search(stranger, query="word")).code is Code.FORBIDDEN


# The index follows the log.


def test_what_was_not_committed_is_not_found(library: Library) -> None:
    harness = library.harness
    ada, _ = harness.join("ada"), harness.join("bob")
    harness.decide(c.Send(ada, content=content("@bob", "unsaid")))
    assert library.find(ada, "unsaid") == []
    harness.broker.commit()
    assert library.find(ada, "unsaid") == ["unsaid"]


def test_what_was_said_is_found_after_a_restart(library: Library) -> None:
    harness = library.harness
    ada, _ = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob", "before")
    assert library.find(ada, "before") == ["before"]
    harness.restart()
    library.reopen()
    harness.send(harness.attach("ada"), "@bob", "before and after")
    assert library.find(harness.attach("ada"), "before") == ["before and after", "before"]


def test_a_new_member_of_an_old_name_finds_nothing_of_before(library: Library) -> None:
    harness = library.harness
    ada = harness.join("ada")
    harness.add("bob")
    before = harness.send(ada, "@bob", "for the first bob")
    harness.remove("bob")
    bob = harness.join("bob")
    after = harness.send(ada, "@bob", "for the second bob")
    assert library.find(bob, "bob") == ["for the second bob"]
    (deferred,) = harness.outcome.replies
    assert isinstance(deferred, Deferred)
    assert isinstance(deferred.work, SearchQuery)
    # The question says so itself, whatever an index looks at.
    assert [deferred.work.sees(one.offset, "ada", "@bob", ()) for one in (before, after)] == [False, True]


def test_what_retention_forgot_is_found_no_more(make_library: Callable[[Limits], Library]) -> None:
    library = make_library(FORGETFUL)
    harness = library.harness
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob", "old words")
    harness.advance(bob, 1)
    assert library.find(ada, "words") == ["old words"]
    harness.pass_ms(60 * 60 * 1000 + 1)
    harness.send(ada, "@bob", "new words")
    assert library.find(ada, "words") == ["new words"]


def indexed(index: SearchIndex) -> int:
    assert isinstance(index, SqliteSearch)
    return int(index._connection.execute("SELECT count(*) FROM said").get)


def test_it_takes_in_what_is_new_while_nobody_writes(tmp_path: Path) -> None:
    library = sqlite(tmp_path, DEFAULT_LIMITS)
    ada, _ = library.harness.join("ada"), library.harness.join("bob")
    for number in range(3):
        library.harness.send(ada, "@bob", f"number {number}")
        assert not library.index.work()
        assert indexed(library.index) == 0
    for _ in range(3):
        library.index.work()
    assert indexed(library.index) == 3
    library.index.close()


def test_what_retention_forgot_leaves_the_index_too(tmp_path: Path) -> None:
    library = sqlite(tmp_path, FORGETFUL)
    ada, bob = library.harness.join("ada"), library.harness.join("bob")
    library.harness.send(ada, "@bob", "old words")
    library.harness.advance(bob, 1)
    for _ in range(4):
        library.index.work()
    assert indexed(library.index) == 1
    library.harness.pass_ms(60 * 60 * 1000 + 1)
    for _ in range(4):
        library.index.work()
    assert indexed(library.index) == 0
    library.index.close()


def test_a_damaged_index_and_one_of_another_log_are_made_anew(tmp_path: Path) -> None:
    library = sqlite(tmp_path, DEFAULT_LIMITS)
    ada, _ = library.harness.join("ada"), library.harness.join("bob")
    library.harness.send(ada, "@bob", "kept words")
    assert library.find(ada, "kept") == ["kept words"]
    library.index.close()
    (tmp_path / SEARCH_FILE).write_bytes(b"not a database, but long enough to look like one" * 100)
    library.reopen()
    assert library.find(ada, "kept") == ["kept words"]
    assert isinstance(library.index, SqliteSearch)
    library.index._connection.execute("UPDATE progress SET hash = x'00'")
    assert library.find(ada, "kept") == ["kept words"]
    assert indexed(library.index) == 1
    library.index.close()


def test_an_index_from_before_a_redaction_is_made_anew(tmp_path: Path) -> None:
    library = sqlite(tmp_path, DEFAULT_LIMITS)
    harness, file = library.harness, tmp_path / SEARCH_FILE
    ada, _ = harness.join("ada"), harness.join("bob")
    leaked = harness.send(ada, "@bob", "xylophone words")
    harness.send(ada, "@bob", "other words")
    assert library.find(ada, "words") == ["other words", "xylophone words"]
    library.index.close()
    before = file.read_bytes()
    assert b"xylophone" in before
    harness.expect(Redaction, c.Redact(harness.operator, message_id=leaked.message_id, reason="a slip"))
    library.reopen()
    assert b"xylophone" not in file.read_bytes()
    assert library.find(ada, "words") == ["other words"]
    # A program that was killed leaves the old file.
    library.index.close()
    file.write_bytes(before)
    library.reopen()
    assert b"xylophone" not in file.read_bytes()
    assert library.find(ada, "words") == ["other words"]
    library.reopen()
    assert indexed(library.index) == 2, "once is enough"
    library.index.close()


def test_an_open_index_notices_a_redaction_by_itself(tmp_path: Path) -> None:
    library = sqlite(tmp_path, DEFAULT_LIMITS)
    ada, _ = library.harness.join("ada"), library.harness.join("bob")
    leaked = library.harness.send(ada, "@bob", "xylophone words")
    assert library.find(ada, "words") == ["xylophone words"]
    redact = c.Redact(library.harness.operator, message_id=leaked.message_id, reason="a slip")
    library.harness.expect(Redaction, redact)
    assert library.find(ada, "slip") == ["redacted by operator: a slip"]
    library.index.close()
    assert b"xylophone" not in (tmp_path / SEARCH_FILE).read_bytes()


# A failed rebuild is tried again.


def fail_once(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, error: Exception, call: int = 1) -> None:
    """Let one call of a method raise an error. `call` is the number of that call, from 1."""
    real, calls = getattr(owner, name), count(1)

    def run(*arguments: Any, **named: Any) -> Any:
        if next(calls) == call:
            raise error
        return real(*arguments, **named)

    monkeypatch.setattr(owner, name, run)


def by_work(library: Library, _session: SessionId) -> None:
    for _ in range(3):
        library.index.work()


def by_find(library: Library, session: SessionId) -> None:
    assert library.find(session, "words") == ["other words", "first words"]


FAILURES = [
    pytest.param(SqliteSearch, "_connect", DiskError("the disk is full"), id="connect"),
    pytest.param(Path, "unlink", OSError(errno.EMFILE, "Too many open files"), id="remove"),
]


@pytest.mark.parametrize("again", [by_work, by_find])
@pytest.mark.parametrize("damaged", [False, True], ids=["erased", "damaged"])
@pytest.mark.parametrize(("owner", "step", "error"), FAILURES)
def test_an_index_that_could_not_be_made_anew_is_made_at_its_next_use(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    step: str,
    error: Exception,
    damaged: bool,
    again: Callable[[Library, SessionId], None],
) -> None:
    library = sqlite(tmp_path, DEFAULT_LIMITS)
    ada, _ = library.harness.join("ada"), library.harness.join("bob")
    library.harness.send(ada, "@bob", "first words")
    library.harness.send(ada, "@bob", "other words")
    by_find(library, ada)
    fail_once(monkeypatch, owner, step, error)
    if damaged:
        fail_once(monkeypatch, SqliteSearch, "_log_end", apsw.CorruptError("database disk image is malformed"))
    with pytest.raises(StoreError, match=str(error.args[-1])):
        library.index.work() if damaged else library.index.start_over()
    again(library, ada)
    assert indexed(library.index) == 2
    by_find(library, ada)
    library.index.close()


@pytest.mark.parametrize("again", [by_work, by_find])
@pytest.mark.parametrize(("owner", "step", "error"), FAILURES)
def test_an_index_that_could_not_be_made_anew_at_the_start_is_made_at_its_next_use(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    step: str,
    error: Exception,
    again: Callable[[Library, SessionId], None],
) -> None:
    library = sqlite(tmp_path, DEFAULT_LIMITS)
    ada, _ = library.harness.join("ada"), library.harness.join("bob")
    leaked = library.harness.send(ada, "@bob", "xylophone words")
    library.harness.send(ada, "@bob", "first words")
    library.harness.send(ada, "@bob", "other words")
    assert len(library.find(ada, "words")) == 3
    redact = c.Redact(library.harness.operator, message_id=leaked.message_id, reason="a slip")
    library.harness.expect(Redaction, redact)
    # The first connection opens the old index, and the second one makes it anew.
    fail_once(monkeypatch, owner, step, error, call=2 if step == "_connect" else 1)
    library.reopen()
    again(library, ada)
    assert indexed(library.index) == 3
    by_find(library, ada)
    library.index.close()
    assert b"xylophone" not in (tmp_path / SEARCH_FILE).read_bytes()
