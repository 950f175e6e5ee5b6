"""Episodes on disk: Parquet files that are made by anyone who plays, and streamed to learners that do not."""

from esper.runs.recordings.part import EPISODES_PER_PART, read_part, write_part
from esper.runs.recordings.recording import DIRECTORY, Part, Recording, files_of
from esper.runs.recordings.schema import BadRecording, RecordingSchema
