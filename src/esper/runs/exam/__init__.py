"""Is the learned controller really better? Every policy on the same held-out seeds, with intervals."""

from esper.runs.exam.conduct import Exam, ExamConfig
from esper.runs.exam.report import BadExam, read_rows, write_report
from esper.runs.exam.row import ExamRow
from esper.runs.exam.watching import Bars, Lines

__all__ = ["BadExam", "Bars", "Exam", "ExamConfig", "ExamRow", "Lines", "read_rows", "write_report"]
