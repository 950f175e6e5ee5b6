"""Episodes on disk: Parquet files that are made by anyone who plays, and streamed to learners that do not."""

from esper.runs.recordings.collector import Collector, OtherRecording, RecordingBusy
from esper.runs.recordings.config import InvalidRecording, RecordConfig
from esper.runs.recordings.directory import RecordingDirectory
from esper.runs.recordings.minari_set import DataSetExists, MissingMinari, from_minari, to_minari
from esper.runs.recordings.part import EPISODES_PER_PART, read_part, write_part
from esper.runs.recordings.recording import RECORDING, Recording, files_of
from esper.runs.recordings.schema import BadRecording, RecordingSchema
