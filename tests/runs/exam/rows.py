"""Rows of exams that were never sat."""

from esper.telemetry.exam_row import ExamRow


def made_row(policy="learned", seed=0, quality=0.5, task="toy", parameters=200, **changed):
    values = {
        "task": task,
        "policy": policy,
        "seed": seed,
        "rent": 0.1,
        "judged_by": "accuracy",
        "quality": quality,
        "loss": 2.0 * (1.0 - quality),
        "evaluation_quality": quality,
        "area": quality / 2,
        "host_parameters": 100,
        "parameters": parameters,
        "training_flops": 1000.0 * parameters,
        "inference_flops": 2.0 * parameters,
        "rollbacks": 0,
        "seconds": 1.5,
    }
    return ExamRow(**{**values, **changed})


def made_rows(task="toy", **qualities):
    """Rows of policies by their qualities on seeds 0, 1, ..."""
    return [
        made_row(policy, seed, quality, task)
        for policy, values in qualities.items()
        for seed, quality in enumerate(values)
    ]
