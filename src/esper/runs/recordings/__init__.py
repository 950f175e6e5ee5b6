"""Episodes on disk: Parquet files that are made by anyone who plays, and streamed to learners that do not."""

from esper.runs.recordings.collector import Collector, OtherRecording, RecordingBusy
from esper.runs.recordings.config import InvalidRecording, RecordConfig
from esper.runs.recordings.part import EPISODES_PER_PART, read_part, write_part
from esper.runs.recordings.recording import DIRECTORY, Recording, files_of
from esper.runs.recordings.schema import BadRecording, RecordingSchema
