"""Is the learned controller really better? Every policy on the same held-out seeds, with intervals."""

from esper.runs.exam.config import ExamConfig
from esper.runs.exam.deciding import deciding_summary
from esper.runs.exam.exam import Exam
from esper.runs.exam.progress import ExamBars, ExamLines
from esper.runs.exam.report import write_report
from esper.runs.exam.summary import Terms, exam_summary
from esper.telemetry.exam_row import ExamRow
from esper.telemetry.exam_rows import BadExam, read_rows
