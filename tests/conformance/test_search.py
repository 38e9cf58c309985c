"""Search, sentence by sentence, over the index of every store: what is found, and for whom."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.core.doubles import START_MS, Desk, content
from tieline.contract import command as c
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.limits import DEFAULT_LIMITS, Limits
from tieline.contract.member import Unnamed
from tieline.contract.message import Signature
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Attached, ObjectiveState
from tieline.core.inquiry import Inquiry, SearchIndex, Term, parse
from tieline.core.outcome import Deferred
from tieline.core.store import Store
from tieline.stores.sqlite import SqliteSearch, SqliteStore
from tieline.stores.sqlite.search import SEARCH_FILE

FORGETFUL = Limits(retention_ms=1000)


class Library:
    """A desk and an index over its store."""

    def __init__(
        self, open_store: Callable[[], Store], open_index: Callable[[], SearchIndex], limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self.desk = Desk(open_store, limits)
        self._open_index = open_index
        self.index = open_index()

    def reopen(self) -> None:
        self.index.close()
        self.index = self._open_index()

    def find(self, session: SessionId, query: str, **narrow: Any) -> list[str]:
        """What a session finds."""
        self.desk.decide(c.Search(session, query=query, **narrow))
        (deferred,) = self.desk.outcome.replies
        assert isinstance(deferred, Deferred)
        assert isinstance(deferred.work, Inquiry)
        return [message.content.body for message in self.index.find(deferred.work)]


def sqlite(folder: Path, limits: Limits) -> Library:
    return Library(lambda: SqliteStore(folder, synchronous="OFF"), lambda: SqliteSearch(folder), limits)


@pytest.fixture(params=[sqlite], ids=["sqlite"])
def make_library(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[Limits], Library]]:
    made: list[Library] = []

    def make(limits: Limits) -> Library:
        made.append(request.param(tmp_path, limits))
        return made[-1]

    yield make
    for library in made:
        library.index.close()


@pytest.fixture
def library(make_library: Callable[[Limits], Library]) -> Library:
    return make_library(DEFAULT_LIMITS)


# What is found.


def test_all_words_must_be_there_and_the_newest_comes_first(library: Library) -> None:
    ada, _ = library.desk.join("ada"), library.desk.join("bob")
    for body in ("the red fox", "the red hen", "a fox, all RED", "a dog"):
        library.desk.send(ada, "@bob", body)
    assert library.find(ada, "red fox") == ["a fox, all RED", "the red fox"]
    assert library.find(ada, "cow") == []


def test_a_phrase_a_beginning_a_title_and_letters_with_accents_are_found(library: Library) -> None:
    ada, _ = library.desk.join("ada"), library.desk.join("bob")
    library.desk.send(ada, "@bob", "deploy to the naïve cluster", title="Release notes")
    assert library.find(ada, '"the naive cluster"') == ["deploy to the naïve cluster"]
    assert library.find(ada, '"cluster the"') == []
    assert library.find(ada, "clus*") == library.find(ada, "release") == ["deploy to the naïve cluster"]
    assert library.find(ada, "clus") == []


@pytest.mark.parametrize(
    "query", ["fox) OR (dog", "a'; DROP TABLE said; --", 'fox" AND "dog', "NEAR(fox dog)", "body:fox", "-fox", "fox^2"]
)
def test_a_query_is_words_and_nothing_else(library: Library, query: str) -> None:
    ada, _ = library.desk.join("ada"), library.desk.join("bob")
    library.desk.send(ada, "@bob", "a fox")
    library.desk.send(ada, "@bob", "a dog")
    assert library.find(ada, query) in ([], ["a fox"])


def test_a_query_without_a_word_is_refused(library: Library) -> None:
    ada = library.desk.join("ada")
    for query in ("", "  ", "** --", "😀", "x" * 1001):
        assert library.desk.refused(c.Search(ada, query=query)).code is Code.INVALID_REQUEST


def test_it_is_narrowed_by_sender_peer_thread_and_time(library: Library) -> None:
    desk = library.desk
    ada, bob, _ = desk.join("ada"), desk.join("bob"), desk.join("cy")
    desk.send(ada, "@bob", "note 1", thread="t")
    desk.pass_ms(10)
    first = desk.send(bob, "@ada", "note 2")
    desk.pass_ms(10)
    desk.send(ada, "@cy", "note 3", reply_to=first.message_id)
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
    desk = library.desk
    ada, bob, eve = desk.join("ada"), desk.join("bob"), desk.join("eve")
    desk.send(ada, "@bob", "secret one")
    desk.send(bob, "@ada", "secret two")
    desk.send(eve, "@eve", "secret mine")
    assert library.find(ada, "secret") == library.find(bob, "secret") == ["secret two", "secret one"]
    assert library.find(eve, "secret") == ["secret mine"]
    assert library.find(eve, "secret", place="@ada") == []
    assert library.find(desk.operator, "secret") == ["secret mine", "secret two", "secret one"]


def test_who_joins_later_does_not_find_what_a_former_member_of_its_name_was_told(library: Library) -> None:
    desk = library.desk
    ada, _ = desk.join("ada"), desk.join("bob")
    desk.send(ada, "@bob", "secret")
    desk.remove("bob")
    assert library.find(desk.join("bob"), "secret") == []


def test_channels_are_searched_by_who_is_in_them(library: Library) -> None:
    desk = library.desk
    ada, bob, eve = desk.join("ada"), desk.join("bob"), desk.join("eve")
    for session in (ada, bob):
        desk.subscribe(session, "dev")
    desk.send(ada, "#dev", "plan in dev")
    desk.send(ada, "*", "plan for all")
    assert library.find(bob, "plan") == ["plan for all", "plan in dev"]
    assert library.find(eve, "plan") == ["plan for all"]
    assert library.find(bob, "plan", place="#dev") == ["plan in dev"]
    assert library.find(eve, "plan", place="#dev") == []


def test_the_thread_of_an_objective_is_searched_by_who_has_a_part_in_it(library: Library) -> None:
    desk = library.desk
    ada, bob, eve = desk.join("ada", "objectives.create"), desk.join("bob"), desk.join("eve")
    create = c.CreateObjective(session=ada, title="t", outcome="o", assignee=MemberName("bob"))
    place = f"obj:{desk.expect(ObjectiveState, create).objective.id}"
    desk.send(bob, place, "progress report")
    assert library.find(ada, "progress") == library.find(bob, "progress", place=place) == ["progress report"]
    assert library.find(eve, "progress") == library.find(eve, "progress", place=place) == []


def test_what_is_signed_badly_is_found_by_its_own_protocol_alone(library: Library) -> None:
    desk = library.desk
    ada, token = desk.join("ada"), desk.add("bob")
    desk.expect(Accepted, c.Send(ada, content=content("@bob", "forged"), signature=Signature.FAILED))
    assert library.find(desk.attach_by_token(token, "elsewhere"), "forged") == []
    assert library.find(desk.attach_by_token(token, "hub"), "forged") == ["forged"]


def test_somebody_without_an_identity_may_not_search(library: Library) -> None:
    attach = c.Attach(protocol="agent-channels", credential=Unnamed("client-0", "general"))
    stranger = library.desk.expect(Attached, attach).session
    assert library.desk.refused(c.Search(stranger, query="word")).code is Code.FORBIDDEN


# How the index follows the log.


def test_what_was_not_committed_is_not_found(library: Library) -> None:
    desk = library.desk
    ada, _ = desk.join("ada"), desk.join("bob")
    desk.decide(c.Send(ada, content=content("@bob", "unsaid")))
    assert library.find(ada, "unsaid") == []
    desk.broker.commit()
    assert library.find(ada, "unsaid") == ["unsaid"]


def test_what_was_said_is_found_after_a_restart(library: Library) -> None:
    desk = library.desk
    ada, _ = desk.join("ada"), desk.join("bob")
    desk.send(ada, "@bob", "before")
    assert library.find(ada, "before") == ["before"]
    desk.restart()
    library.reopen()
    desk.send(desk.attach("ada"), "@bob", "before and after")
    assert library.find(desk.attach("ada"), "before") == ["before and after", "before"]


def test_what_retention_forgot_is_found_no_more(make_library: Callable[[Limits], Library]) -> None:
    library = make_library(FORGETFUL)
    desk = library.desk
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.send(ada, "@bob", "old words")
    desk.advance(bob, 1)
    assert library.find(ada, "words") == ["old words"]
    desk.pass_ms(60 * 60 * 1000 + 1)
    desk.send(ada, "@bob", "new words")
    assert library.find(ada, "words") == ["new words"]


def indexed(index: SearchIndex) -> int:
    assert isinstance(index, SqliteSearch)
    return int(index._connection.execute("SELECT count(*) FROM said").get)


def test_it_takes_in_what_is_new_while_nobody_writes(tmp_path: Path) -> None:
    library = sqlite(tmp_path, DEFAULT_LIMITS)
    ada, _ = library.desk.join("ada"), library.desk.join("bob")
    for number in range(3):
        library.desk.send(ada, "@bob", f"number {number}")
        assert not library.index.work()
        assert indexed(library.index) == 0
    for _ in range(3):
        library.index.work()
    assert indexed(library.index) == 3
    library.index.close()


def test_what_retention_forgot_leaves_the_index_too(tmp_path: Path) -> None:
    library = sqlite(tmp_path, FORGETFUL)
    ada, bob = library.desk.join("ada"), library.desk.join("bob")
    library.desk.send(ada, "@bob", "old words")
    library.desk.advance(bob, 1)
    for _ in range(4):
        library.index.work()
    assert indexed(library.index) == 1
    library.desk.pass_ms(60 * 60 * 1000 + 1)
    for _ in range(4):
        library.index.work()
    assert indexed(library.index) == 0
    library.index.close()


def test_a_damaged_index_and_one_of_another_log_are_made_anew(tmp_path: Path) -> None:
    library = sqlite(tmp_path, DEFAULT_LIMITS)
    ada, _ = library.desk.join("ada"), library.desk.join("bob")
    library.desk.send(ada, "@bob", "kept words")
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
