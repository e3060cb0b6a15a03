"""The sampler of ratings on a GPU: the chain of the CPU's, whose draw is on the GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from noisewise.engine.arrays import Counts, Floats
from noisewise.engine.data import Data, Scale, Spec, Timeline
from noisewise.engine.devices import Device
from noisewise.engine.gibbs.gpu import GpuDraw, GpuWorkspace
from noisewise.engine.gibbs.gpu_steps import GpuSweep, rating_steps
from noisewise.engine.gibbs.sampler import PROBES, Chain, RatingSampler
from noisewise.engine.gibbs.schedule import Schedule
from noisewise.engine.gibbs.steps.temporal import phi_and_variance
from noisewise.engine.gibbs.sweep import EFFECTS, RatingDraw, Snapshot, Sweep, first_draw

SMALL = ("centres", "precisions", "width_centre", "temporal_settings")


class GpuSampler(RatingSampler):
    """A sampler of ratings on a GPU; what it keeps of draws is numpy's."""

    looked_here: Any
    users_here: Any
    probes_here: Any
    seen: list[Any]

    work: GpuWorkspace

    def __init__(
        self,
        device: Device,
        spec: Spec,
        data: Data,
        scale: Scale,
        counts: tuple[Counts, ...],
        timeline: Timeline | None,
        schedule: Schedule,
        held_out: Any,
        n_jobs: int,
    ) -> None:
        self.device = device
        super().__init__(spec, data, scale, counts, timeline, schedule, held_out, n_jobs)
        self.looked_here = device.on_device(self.looked)
        self.users_here = device.on_device(self.some[0])
        self.probes_here = device.on_device(np.ascontiguousarray(self.probes))
        self.seen = [  # rows that have observations
            device.on_device(np.flatnonzero(np.diff(data.starts[m])) + data.firsts[m])
            for m in range(data.n_modes)
        ]

    def _sweep(
        self, spec: Spec, data: Data, scale: Scale, n_jobs: int, burn_in: int
    ) -> Sweep[RatingDraw]:
        self.work = GpuWorkspace(self.device, spec, data, burn_in)
        self.work.n_jobs = n_jobs  # for predictions of held-out cells
        return GpuSweep(self.work, rating_steps(self.work, scale.anchor))

    def start(self) -> Chain[RatingDraw]:
        """Return a chain before its first sweep."""
        draw = first_draw(self.spec, self.data, len(self.scale.levels))
        return self._started(GpuDraw.of(draw, self.device), len(self.truth), self.looks)

    def _roots(self) -> tuple[float, float]:
        root, n = self.work.root, len(self.data)
        sums = self.work.xp.stack([
            self.work.xp.log(root).sum(dtype=np.float64), root.sum(dtype=np.float64)
        ])  # fmt: skip
        log_root, plain = self.device.on_host(sums).tolist()
        return log_root / n, plain / n

    def _typical_root(self) -> float:
        return float(self.work.xp.median(self.work.root))

    def _predicted(self, draw: RatingDraw) -> tuple[Floats, Any]:
        out = self.work.xp.empty(PROBES, dtype=np.float32)
        return self.device.on_host(self.work.fit(self.probes_here, draw, out)), None

    def _look(self, draw: RatingDraw) -> Any:
        at, values = self.looked_here, draw.latent if self.spec.ordinal else self.work.here.values
        return map(self.device.on_host, (draw.mean(at), self.work.root[at], values[at]))

    def _looked_widths(self, draw: RatingDraw) -> Any:
        return self.device.on_host(draw.widths[self.users_here])

    def _snapshot(self, draw: RatingDraw, half: type = np.float16) -> Snapshot:
        rank, here = self.spec.rank, self.device.on_host
        means, covariances = zip(*(self._spread(draw, seen) for seen in self.seen), strict=True)
        kept = {
            "factors": here(draw.factors[:, :rank].astype(half)),
            "biases": here(draw.biases.astype(half)),
            "noise": here(draw.noise),
            "level": draw.level.astype(np.float32),
            "typical": np.array(means, dtype=np.float32),
            "covariances": np.array(covariances, dtype=np.float32),
        }
        kept |= {name: getattr(draw, name).astype(np.float32) for name in SMALL}
        kept |= {name: here(getattr(draw, name).astype(half)) for name in ("features", "widths")}
        for mode in range(2 if self.spec.time else 0):
            kept[f"gaps{mode}"] = here(self._gaps(draw, mode).astype(half))
        return kept

    def _spread(self, draw: RatingDraw, seen: Any) -> tuple[Any, Any]:
        """Mean and covariance of the rows that have observations."""
        both = draw.factors[seen, : self.spec.rank], draw.biases[seen][:, None]
        rows = self.work.xp.concatenate(both, axis=1).astype(np.float64)
        mean = rows.mean(axis=0)
        rows -= mean
        return self.device.on_host(mean), self.device.on_host(rows.T @ rows / len(rows))

    def _gaps(self, draw: RatingDraw, mode: int) -> Any:
        """Do what ``temporal.gaps`` does."""
        xp, here = self.work.xp, self.work.here
        starts, index, own = here.starts[mode], here.index[mode], here.places[mode]
        after = xp.arange(len(index)) + (own[index] - self.data.firsts[mode])
        total = xp.zeros(len(index) + self.data.shape[mode], dtype=np.float32)
        ends = starts + xp.arange(len(starts))
        phis, _ = phi_and_variance(draw.temporal_settings)
        for (owner, _), phi, effect in zip(EFFECTS, phis, draw.temporal, strict=True):
            if owner != mode:
                continue
            both, values = xp.zeros_like(total), effect[index]
            both[after] = values
            both[after + 1] += values
            weight = xp.full(len(total), np.sqrt(phi) / (1.0 + phi), dtype=np.float32)
            weight[ends[:-1]] = np.sqrt(phi)
            weight[ends[1:] - 1] = np.sqrt(phi)
            total += weight * both
        return total
