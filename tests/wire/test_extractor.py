"""Tests of the extractor without a grammar: everything that a program prints passes unchanged."""

from tieline.wire.extractor import Extractor, Passed


def test_without_a_grammar_everything_is_passed_and_nothing_is_held() -> None:
    extractor = Extractor()
    assert extractor.receive_data(b"->somebody: <<<\nhello>>>\n") == [Passed(b"->somebody: <<<\nhello>>>\n")]
    assert extractor.next_timeout() is None
    assert extractor.flush() == extractor.receive_eof() == []
    assert not extractor.alternate_screen
    assert extractor.disarm("->somebody: <<<") == "->somebody: <<<"
