"""The trainer: one step is the step of section 4.5 of the decomposition's SPEC.md."""

import math
from collections.abc import Callable, Iterable, Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn

from falsifiers.param_decomp.configuration import configuration_of
from falsifiers.param_decomp.reference import losses, schedule
from falsifiers.param_decomp.reference.adversary import Adversary
from falsifiers.param_decomp.reference.drawing import Stream, chunks
from falsifiers.param_decomp.reference.importance import ImportanceModel, lower_leaky, upper_leaky
from falsifiers.param_decomp.reference.target import Site, Target
from falsifiers.param_decomp.subject import Masking
from harness import Setting


class Decomposition:
    """A target with random weights, its components, their importances and their adversary.

    The weights are random because the claims are about steps, not about what a decomposition finds.
    """

    def __init__(self, setting: Setting) -> None:
        self.config = config = configuration_of(setting.parameters)
        self.seed = setting.seed
        self.device = torch.device("meta" if config.storage == "meta" else setting.device)
        self.dtype, self.compute_dtype = (getattr(torch, name) for name in (config.dtype, config.compute_dtype))
        self.generator = torch.Generator().manual_seed(setting.seed)
        self.target = Target(config, lambda rows, columns: self.drawn(rows, columns).to(self.compute_dtype))
        order = {kind: place for place, kind in enumerate(config.kinds)}
        sites = [site for site in self.target.matrices() if hasattr(site, "V")]
        sites.sort(key=lambda site: (int(site.name.split(".")[1]), order[site.name.split(".")[-1][: -len("_proj")]]))
        self.sites: dict[str, Site] = {site.name: site for site in sites}
        for site in sites:
            site.V = nn.Parameter(self.drawn(*site.V.shape))
            site.U = nn.Parameter(self.drawn(*site.U.shape))
        with torch.device(self.device):
            self.importances = ImportanceModel(config, list(self.sites)).to(self.dtype)
        for weight in self.importances.parameters():
            weight.data = self.drawn(*weight.shape) if weight.dim() > 1 else torch.zeros_like(weight)
        # Initial importances lie on both sides of 0 and of 1.
        self.importances.output.bias.data.fill_(0.5)
        self.adversary = Adversary({name: self.first_source() for name in self.sites})
        self.component_optimizer = torch.optim.AdamW(self.components().values(), weight_decay=0.0)
        self.importance_optimizer = torch.optim.AdamW(self.importance_weights().values(), weight_decay=0.0)

    def drawn(self, rows: int, columns: int) -> Tensor:
        """A normal matrix that preserves the scale of its inputs."""
        if self.device.type == "meta":
            return torch.empty(rows, columns, device=self.device, dtype=self.dtype)
        drawn = torch.randn(rows, columns, generator=self.generator, dtype=self.dtype).div_(math.sqrt(rows))
        return drawn.to(self.device)

    def first_source(self) -> Tensor:
        shape = (1, self.config.sequence, self.config.components + 1)
        if self.device.type == "meta":
            return torch.empty(shape, device=self.device, dtype=self.dtype)
        return torch.rand(shape, generator=self.generator, dtype=self.dtype).to(self.device)

    # The state, for falsifiers.

    def target_weights(self) -> Mapping[str, Tensor]:
        matrices = {site.name: site.W for site in self.target.matrices()}
        return {"embedding": self.target.embedding, **matrices, "head": self.target.head}

    def components(self) -> Mapping[str, Tensor]:
        return {f"{name}.{which}": getattr(site, which) for name, site in self.sites.items() for which in "VU"}

    def importance_weights(self) -> Mapping[str, Tensor]:
        return dict(self.importances.named_parameters())

    def sources(self) -> Mapping[str, Tensor]:
        return self.adversary.sources

    def slots(self) -> Mapping[str, Mapping[str, Tensor]]:
        optimizers = (
            (self.component_optimizer, self.components()),
            (self.importance_optimizer, self.importance_weights()),
        )
        moments = {
            name: optimizer.state[weight]
            for optimizer, weights in optimizers
            for name, weight in weights.items()
            if weight in optimizer.state
        }
        return {**moments, **{f"{name}.source": slots for name, slots in self.adversary.slots.items()}}

    # The parts of a step.

    @property
    def rows(self) -> range:
        """This rank's rows of the batch."""
        rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        share = self.config.batch // ranks
        return range(rank * share, (rank + 1) * share)

    def batch(self, step: int) -> Tensor:
        """Random tokens of this rank's rows: a function of seed and step."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        tokens = torch.randint(self.config.vocabulary, (self.config.batch, self.config.sequence), generator=generator)
        return tokens[self.rows.start : self.rows.stop].to(self.device)

    def divergence(self, masked: Tensor, clean: Tensor) -> Tensor:
        return losses.divergence(masked, clean)

    def gates(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        return lower_leaky(logits), upper_leaky(logits)

    def masking(self, lower: Tensor, source: Tensor, route: Tensor | None = None) -> Masking:
        """A component's mask is 1 at an importance of 1; the last channel of the source is the residual's mask."""
        return Masking(lower + (1 - lower) * source[..., :-1], source[..., -1].expand(lower.shape[:-1]), route)

    def frequencies(self, upper: Mapping[str, Tensor], step: int) -> tuple[Tensor, Tensor]:
        return losses.minimality(upper, self.p(step), self.config.eps)

    def p(self, step: int) -> float:
        return schedule.annealed(self.config.p_start, self.config.p_end, step, self.config.steps)

    def component_rate(self, step: int) -> float:
        return self.scheduled(self.config.component_rate, step)

    def importance_rate(self, step: int) -> float:
        return self.scheduled(self.config.importance_rate, step)

    def scheduled(self, rate: float, step: int) -> float:
        """A rate for this batch, at a step."""
        rate = schedule.scaled_to_batch(rate, self.config.batch, self.config.reference_batch)
        return schedule.cosine(rate, step, self.config.steps, self.config.final_rate)

    def source_rate(self, step: int) -> float:
        """Constant after its warm-up."""
        return schedule.warmed_up(self.config.source_rate, step, self.config.steps, self.config.source_warmup)

    # A step.

    def step(self, step: int) -> Mapping[str, float]:
        """Make a step; return its values as numbers, averaged over ranks, and nothing for tensors without data."""
        values = self.update(step)
        if self.device.type == "meta":
            return {}
        return {name: float(self.averaged(value.clone())) for name, value in values.items()}

    def update(self, step: int) -> Mapping[str, Tensor]:
        """Raise the sources, compute all terms, and update components, importances and sources."""
        config = self.config
        tokens = self.batch(step)
        clean, lower, upper = self.importances_of(tokens)
        if config.adversarial:
            self.warm_up_sources(tokens, lower, clean, step)
        terms = {"faithfulness": losses.faithfulness(self.sites.values())}
        terms["minimality"], terms["frequency"] = self.frequencies(upper, step)
        terms["stochastic"] = self.stochastic(tokens, lower, clean, step)
        if config.adversarial:
            terms["adversarial"] = self.adversarial(tokens, lower, clean)
        total = torch.stack([getattr(config, name) * term for name, term in terms.items()]).sum()
        for optimizer in (self.component_optimizer, self.importance_optimizer):
            optimizer.zero_grad()
        total.backward()
        self.average_gradients()
        if config.adversarial:
            self.main_ascent(step)
        nn.utils.clip_grad_norm_(self.components().values(), config.gradient_norm)
        for optimizer, rate in (
            (self.component_optimizer, self.component_rate(step)),
            (self.importance_optimizer, self.importance_rate(step)),
        ):
            optimizer.param_groups[0]["lr"] = rate
            optimizer.step()
        return {name: value.detach() for name, value in {**terms, "total": total}.items()}

    def importances_of(self, tokens: Tensor) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """The clean logits, and both gates of every site's importances on the clean path."""
        taps = {self.config.first_layer: torch.empty(0)}
        with torch.no_grad():
            clean = self.target(tokens, taps=taps)
        logits = self.importances(taps[self.config.first_layer].to(self.dtype))
        gates = {name: self.gates(logit) for name, logit in logits.items()}
        lower = {name: gate.to(self.compute_dtype) for name, (gate, _) in gates.items()}
        return clean, lower, {name: gate for name, (_, gate) in gates.items()}

    def stochastic(self, tokens: Tensor, lower: Mapping[str, Tensor], clean: Tensor, step: int) -> Tensor:
        """The mean divergence of all forwards: `samples` per chunk of sites, routed to random subsets of it."""
        divergences = []
        for chunk in chunks(list(self.sites), self.config.sites_per_chunk):
            for _ in range(self.config.samples):
                stream = Stream(self.seed, step, len(divergences), self.rows, self.device)
                maskings = self.stochastic_maskings(chunk, lower, stream)
                divergences.append(self.divergence(self.target(tokens, maskings), clean))
        return torch.stack(divergences).mean()

    def stochastic_maskings(
        self, chunk: list[str], lower: Mapping[str, Tensor], stream: Stream
    ) -> Callable[[str], Masking | None]:
        """The masking of a chunk's sites, computed at the site call, so that a forward does not keep all masks."""
        routes = dict(zip(chunk, stream.uniform_k(len(chunk), self.config.sequence), strict=True))
        places = {name: place for place, name in enumerate(self.sites)}

        def masking(name: str) -> Masking | None:
            if name not in routes:
                return None
            channels = self.config.components + 1
            source = stream.source(places[name], self.config.sequence, channels, lower[name].dtype)
            return self.masking(lower[name], source, routes[name])

        return masking

    def adversarial(self, tokens: Tensor, lower: Mapping[str, Tensor], clean: Tensor) -> Tensor:
        """The divergence with all sites masked by the sources at all positions."""
        sources = self.adversary.sources

        def masking(name: str) -> Masking | None:
            return self.masking(lower[name], sources[name].to(lower[name].dtype)) if name in sources else None

        return self.divergence(self.target(tokens, masking), clean)

    def warm_up_sources(self, tokens: Tensor, lower: Mapping[str, Tensor], clean: Tensor, step: int) -> None:
        """The ascents before a step, in which components and importances do not change."""
        fixed = {name: gate.detach() for name, gate in lower.items()}
        for _ in range(self.config.ascents):
            term = self.adversarial(tokens, fixed, clean)
            gradients = torch.autograd.grad(term, list(self.adversary.sources.values()))
            averaged = [self.averaged(gradient) for gradient in gradients]
            self.adversary.ascend(dict(zip(self.adversary.sources, averaged, strict=True)), self.source_rate(step))

    def main_ascent(self, step: int) -> None:
        """The last ascent of a step, by the gradients of its backward pass without the term's coefficient."""
        gradients = {}
        for name, source in self.adversary.sources.items():
            assert source.grad is not None
            gradients[name] = source.grad / self.config.adversarial
            source.grad = None
        self.adversary.ascend(gradients, self.source_rate(step))

    def average_gradients(self) -> None:
        """Average every gradient over ranks."""
        weights: Iterable[Tensor] = (
            *self.components().values(), *self.importance_weights().values(), *self.adversary.sources.values()
        )  # fmt: skip
        for weight in weights:
            if weight.grad is not None:
                weight.grad = self.averaged(weight.grad)

    def averaged(self, gradient: Tensor) -> Tensor:
        if not dist.is_initialized():
            return gradient
        dist.all_reduce(gradient)
        return gradient / dist.get_world_size()
