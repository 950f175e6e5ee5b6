"""docs/events.md says what the events are."""

from dataclasses import fields
from pathlib import Path

import pytest

from esper.telemetry import EVENTS
from esper.telemetry.describe import EXAMPLES, document, sentence_of
from esper.telemetry.events import PARTS
from esper.telemetry.query import query
from tests.telemetry.cases import STARTED, episode, log_of, round_finished

DOCUMENT = Path(__file__).parents[2] / "docs" / "events.md"
FIELDS = [(kind, each.name) for kind in (*EVENTS.values(), *PARTS) for each in fields(kind)]


def test_the_document_is_that_of_the_events():
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "run python -m esper.telemetry.describe > docs/events.md"


@pytest.mark.parametrize("kind", EVENTS.values(), ids=EVENTS)
def test_every_event_has_a_sentence(kind):
    assert "(" not in (kind.__doc__ or "(")[: len(kind.__name__) + 1], "the docstring is the generated signature"
    assert (kind.__doc__ or "").strip().endswith(".")


@pytest.mark.parametrize(("kind", "field"), FIELDS, ids=[f"{kind.__name__}.{field}" for kind, field in FIELDS])
def test_every_field_has_a_sentence(kind, field):
    assert sentence_of(kind, field)[0].isupper()
    assert sentence_of(kind, field).endswith(".")


@pytest.mark.parametrize(("question", "sql"), EXAMPLES, ids=["learning", "blueprints", "choices"])
def test_the_examples_are_answered(question, sql, tmp_path):
    log_of(tmp_path, (0, None, [STARTED]), (0, 5, episode()), (0, None, [round_finished(0.5)]))
    columns, rows = query(tmp_path, sql)
    assert question.endswith((".", "?"))
    assert columns
    if "seeds" in sql:
        assert rows == [("conv", 1, 1, 0.03), ("norm", 1, 0, 0.01)]
