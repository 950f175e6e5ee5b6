"""Is the learned controller really better? Every policy on the same held-out seeds, with intervals."""

from esper.runs.exam.exam import Exam, ExamConfig
from esper.runs.exam.progress import ExamBars, ExamLines
from esper.runs.exam.report import BadExam, read_rows, write_report
from esper.runs.exam.row import ExamRow

__all__ = ["BadExam", "Exam", "ExamBars", "ExamConfig", "ExamLines", "ExamRow", "read_rows", "write_report"]
