"""What there is to win in a family of tasks: every single seed of every task, trained once and for all."""

from esper.runs.survey.analysis import (
    RENT_BANDS,
    ConstantChoice,
    ConstantOf,
    Interval,
    best_by_host,
    best_by_rent,
    best_constant,
    gains_by_seed,
    gains_of,
    oracle,
    over_tasks,
    rent_band,
    search_by_seed,
    search_gain,
)
from esper.runs.survey.config import InvalidSurvey, SurveyConfig
from esper.runs.survey.file import BadSurvey, read_survey, write_survey
from esper.runs.survey.fitting import Examples, FitConfig, InvalidFit, fit_gain_networks, networks_fitted_to, unit_of
from esper.runs.survey.report import ChoiceGain, findings_of
from esper.runs.survey.survey import Survey
from esper.runs.survey.table import HostCourse, SurveyRow, SurveyTable, TaskSurvey
