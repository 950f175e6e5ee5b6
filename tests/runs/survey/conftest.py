"""One tiny survey, made once."""

from types import SimpleNamespace

import pytest

from esper.runs.survey import SurveyConfig
from tests.runs.survey.surveys import make


@pytest.fixture(scope="session")
def surveyed(tmp_path_factory):
    """A survey that nobody interrupted: how it was asked for, its file, its table."""
    path = tmp_path_factory.mktemp("surveyed") / "small-dev.parquet"
    config = SurveyConfig(tasks=1, seeds=2, pairs=0, backend="serial")
    return SimpleNamespace(config=config, path=path, table=make(config, path))
