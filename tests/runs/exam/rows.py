"""Rows of exams that were never sat."""

from collections import defaultdict

from esper.runs.exam.row import ExamRow


def at_rent(rent):
    """The same for all tasks."""
    return defaultdict(lambda: rent)


def made_row(policy="learned", seed=0, accuracy=0.5, task="toy", parameters=200, **changed):
    values = {
        "task": task,
        "policy": policy,
        "seed": seed,
        "accuracy": accuracy,
        "evaluation_accuracy": accuracy,
        "area": accuracy / 2,
        "host_parameters": 100,
        "parameters": parameters,
        "training_flops": 1000.0 * parameters,
        "inference_flops": 2.0 * parameters,
        "rollbacks": 0,
        "seconds": 1.5,
    }
    return ExamRow(**{**values, **changed})


def made_rows(task="toy", **accuracies):
    """Rows of policies by their accuracies on seeds 0, 1, ..."""
    return [
        made_row(policy, seed, accuracy, task)
        for policy, values in accuracies.items()
        for seed, accuracy in enumerate(values)
    ]
