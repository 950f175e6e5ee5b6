"""Where metrics go beside the log: TensorBoard, Weights & Biases, MLflow. Their libraries are extras."""

from esper.telemetry.sinks.sinks import SINKS, MissingSink, UnknownSink, check_sinks, flattened, open_sinks
