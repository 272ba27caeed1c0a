"""F-SLURM-GPU-TASK-001: a batch file requests at least as many GPUs per node as it starts tasks there."""

from falsifiers.recsys.batch_files import File
from falsifiers.recsys.oracle.batch_options import NotUnderstood, Request, components, parsed, request
from falsifiers.recsys.tool_subjects import BatchFile
from harness import NotMeasured, Trial, Unobserved

__all__ = ["File", "falsify"]


def falsify(trial: Trial[BatchFile]) -> None:
    """Compare tasks and GPUs per node, for each component of the job.

    If a component requests 0 GPUs and others have some, its tasks need none.
    """
    with trial.subject_fault():
        text = trial.subject.text()
    try:
        of_command = parsed(trial.parameters["command_line"].split())[0]
        requests = [request({**options, **of_command}) for options in components(text)]
    except NotUnderstood as error:
        raise NotMeasured(f"a #SBATCH line is not understood: {error}") from error
    on_gpus = [request for request in requests if request.gpus_per_node != 0] or requests
    trial.measure(
        components=len(requests),
        tasks_per_node=[_tasks(component) for component in on_gpus],
        gpus_per_node=[_gpus(component, trial.parameters["gpus_of_a_node"]) for component in on_gpus],
        tasks_without_gpu=[
            _tasks(component) - _gpus(component, trial.parameters["gpus_of_a_node"]) for component in on_gpus
        ],
    )
    trial.resolve(device="cpu")


def _tasks(request: Request) -> int | Unobserved:
    if request.tasks_per_node is None:
        return Unobserved("the file does not say how many tasks a node has; add --nodes or --ntasks-per-node")
    return request.tasks_per_node


def _gpus(request: Request, of_a_node: int) -> int | Unobserved:
    """Return the GPUs of a node. If the file requests none by name, a parameter says how many a node has."""
    if request.gpus_per_node is not None:
        return request.gpus_per_node
    return of_a_node or Unobserved(
        "the file does not say how many GPUs a node has; add --gpus-per-node, or say what your nodes have with "
        "-P gpus_of_a_node=8"
    )
