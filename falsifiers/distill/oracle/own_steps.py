"""The oracle's own training steps in torch and transformers: a reference for the time of a step without a log."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation

from falsifiers.distill.oracle.qwen2 import new_model
from falsifiers.distill.oracle.shadow import Configuration


def own_steps(
    configuration: Configuration, size: tuple[int, int], device: torch.device, dtype: torch.dtype
) -> Iterator[None]:
    """Make a step of a student with a frozen teacher for each item, without end.

    Args:
        size: rows and tokens of a batch, whose ids are random.
    """
    student, teacher = (new_model(configuration.model, device, dtype) for _ in range(2))
    optimizer = torch.optim.AdamW(student.train().parameters(), lr=configuration.learning_rate)
    generator = torch.Generator().manual_seed(0)
    alpha, temperature = configuration.alpha, configuration.temperature
    while True:
        drawn = torch.randint(student.config.vocab_size, (size[0], size[1] + 1), generator=generator).to(device)
        inputs, labels = drawn[:, :-1], drawn[:, 1:].flatten()
        logits = student(input_ids=inputs, use_cache=False).logits.flatten(0, 1)
        with torch.no_grad():
            teacher_logits = teacher(input_ids=inputs, use_cache=False).logits.flatten(0, 1)
        log_q, log_p = (F.log_softmax(tensor / temperature, dim=-1) for tensor in (logits, teacher_logits))
        divergence = F.kl_div(log_q, log_p, reduction="batchmean", log_target=True)
        loss = alpha * F.cross_entropy(logits, labels) + (1.0 - alpha) * temperature**2 * divergence
        optimizer.zero_grad()
        loss.backward()
        if configuration.gradient_norm is not None:
            torch.nn.utils.clip_grad_norm_(student.parameters(), configuration.gradient_norm)
        optimizer.step()
        yield
