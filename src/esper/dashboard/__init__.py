"""The operator's view of runs, exams and grown models: a live web page, and the same as a file to send.

The server is in `esper.dashboard.server`, which is not loaded here: it needs the extra `dashboard`, a report does not.
"""

from esper.dashboard.report import write_report
