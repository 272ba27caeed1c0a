"""F-PD-SOURCE-FILES-001: the source's configuration files have the values that the pull request states."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol

from falsifiers.param_decomp.configuration import Configuration, configuration_of
from falsifiers.param_decomp.oracle.model import site_names
from harness import Trial

_MODEL = ("layers", "hidden", "intermediate", "heads", "kv_heads", "vocabulary", "dtype", "compute_dtype", "storage")
"""Fields of our configuration that follow from the model or are our own; the files do not have them."""


class ConfigurationFiles(Protocol):
    """The configuration files of a checkout of the source; built as `Subject(setting)`."""

    def text(self, number: int) -> str:
        """The text of the older run's file (0), of the pull request's first commit (1), or of the merged file (2)."""
        ...


def falsify(trial: Trial[ConfigurationFiles]) -> None:
    """Read sites, terms and schedules from the files, and compare the files with each other and with our own."""
    import yaml

    with trial.subject_fault():
        base, *new = (yaml.safe_load(trial.subject.text(number)) for number in range(3))
        values = {key: [value(document) for document in new] for key, value in _VALUES.items()}
        flat = [dict(_flat(document)) for document in (base, *new)]
        own = _fields(new[1])
        layers = {str(document["module_pattern"]).split(".")[2] for document in base["pd"]["decomposition_targets"]}
        names = [[target["module_pattern"] for target in document["pd"]["decomposition_targets"]] for document in new]
    configuration = configuration_of({"configuration": "nine-layers"})
    expected = [f"model.{name}" for name in site_names(configuration)]
    rates = [given for document in new for given in _rates(document)]
    trial.measure(
        **values,
        base_batch=base["pd"]["batch_size"],
        base_layers=sorted(layers),
        base_coefficient=_term(base, "StochasticReconSubsetLoss")["coeff"],
        sites=[len(name) for name in names],
        out_of_place=[
            f"{document} for {other}"
            for list_ in names
            for document, other in zip(list_, expected, strict=False)
            if document != other
        ],
        rates_off=[abs(rate / stated - 1) for rate, stated in zip(rates, trial.parameters["rates"], strict=True)],
        changed_otherwise=_changed(flat[1], flat[2], trial.parameters["changed"]),
        base_changed_otherwise=_changed(flat[0], flat[1], trial.parameters["base_changed"]),
        own_differs=[
            f"{field.name}: {getattr(configuration, field.name)}, {own[field.name]}"
            for field in fields(Configuration)
            if field.name not in _MODEL and getattr(configuration, field.name) != own[field.name]
        ],
    )
    trial.resolve(device="cpu")


def _term(document: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    (term,) = (term for term in document["pd"]["loss_metrics"] if term["type"] == kind)
    return dict(term)


def _rates(document: Mapping[str, Any]) -> list[float]:
    """The learning rates of components and importance model."""
    parts = (document["pd"][f"{name}_optimizer"] for name in ("components", "ci_fn"))
    return [float(part["lr_schedule"]["start_val"]) for part in parts]


def _attention(document: Mapping[str, Any]) -> Any:
    return document["pd"]["ci_config"]["simple_transformer_ci_cfg"]["attn_config"]


_VALUES = {
    "batches": lambda document: document["pd"]["batch_size"],
    "tokens": lambda document: document["data"]["max_seq_len"],
    "tokens_of_importances": lambda document: _attention(document)["max_len"],
    "steps": lambda document: document["pd"]["steps"],
    "sizes": lambda document: min({site["C"] for site in document["pd"]["decomposition_targets"]}),
    "frozen": lambda document: document["target"]["weights_dtype"],
    "models": lambda document: document["target"]["spec"]["model_name"],
    "chunk_sites": lambda document: _term(document, "ChunkwiseSubsetReconLoss")["sites_per_chunk"],
    "chunk_coefficients": lambda document: _term(document, "ChunkwiseSubsetReconLoss")["coeff"],
    "adversarial": lambda document: _term(document, "PersistentPGDReconLoss")["coeff"],
    "scopes": lambda document: _term(document, "PersistentPGDReconLoss")["scope"]["type"],
    "faithfulness": lambda document: _term(document, "FaithfulnessLoss")["coeff"],
    "minimality": lambda document: _term(document, "ImportanceMinimalityLoss")["coeff"],
    "betas": lambda document: _term(document, "ImportanceMinimalityLoss")["beta"],
    "first_powers": lambda document: _term(document, "ImportanceMinimalityLoss")["pnorm"],
    "last_powers": lambda document: _term(document, "ImportanceMinimalityLoss")["p_anneal_final_p"],
    "eps": lambda document: _term(document, "ImportanceMinimalityLoss")["eps"],
}
"""The compared values of the two new files, by measurement."""


def _fields(document: Mapping[str, Any]) -> dict[str, Any]:
    """The file's values of the fields of our configuration."""
    given, importances = document["pd"], document["pd"]["ci_config"]["simple_transformer_ci_cfg"]
    sites = [str(target["module_pattern"]).split(".") for target in given["decomposition_targets"]]
    small, persistent = _term(document, "ImportanceMinimalityLoss"), _term(document, "PersistentPGDReconLoss")
    chunks, source = _term(document, "ChunkwiseSubsetReconLoss"), persistent["optimizer"]["lr_schedule"]
    components, importance = _rates(document)
    return {
        "first_layer": int(sites[0][2]),
        "last_layer": int(sites[-1][2]),
        "kinds": tuple(dict.fromkeys(site[-1].removesuffix("_proj") for site in sites)),
        "components": given["decomposition_targets"][0]["C"],
        "importance_width": importances["d_model"],
        "importance_blocks": importances["n_blocks"],
        "importance_heads": _attention(document)["n_heads"],
        "importance_hidden": importances["mlp_hidden_dim"][0],
        "batch": given["batch_size"],
        "sequence": document["data"]["max_seq_len"],
        "steps": given["steps"],
        "faithfulness": _term(document, "FaithfulnessLoss")["coeff"],
        "minimality": small["coeff"],
        "frequency": round(small["coeff"] * small["beta"], 12),
        "stochastic": chunks["coeff"],
        "adversarial": persistent["coeff"],
        "p_start": small["pnorm"],
        "p_end": small["p_anneal_final_p"],
        "eps": small["eps"],
        "sites_per_chunk": chunks["sites_per_chunk"],
        "samples": chunks["n_samples"],
        "ascents": persistent["n_warmup_steps"],
        "source_rate": source["start_val"],
        "source_warmup": source["warmup_pct"],
        "component_rate": components,
        "importance_rate": importance,
        "final_rate": given["components_optimizer"]["lr_schedule"]["final_val_frac"],
        "gradient_norm": given["components_optimizer"]["grad_clip_norm"],
        "reference_batch": given["batch_size"],
        "remat": document["runtime"]["remat_recon_forwards"],
    }


def _changed(old: Mapping[str, Any], new: Mapping[str, Any], known: Sequence[str]) -> list[str]:
    """The keys whose values differ, without keys that begin with one of `known`."""
    keys = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    return [key for key in keys if not key.startswith(tuple(known))]


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Each scalar by its path. A term of the loss is named by its type."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _flat(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _flat(item, f"{key}.{item['type'] if isinstance(item, Mapping) and 'type' in item else place}")
    else:
        yield key, value
