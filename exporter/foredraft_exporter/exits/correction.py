"""The trained part of an adapter: it starts from the ridge and learns the model's own final distribution.

    adapter(x) = W z + b + D silu(U z + u),   z = standardised x

All five are trained by cross-entropy against the last layer's softmax over the most frequent tokens (distillation:
Hinton et al., arXiv 1503.02531). D starts at zero, so that training starts at the ridge. Needs torch.
"""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foredraft_exporter.exits.adapters import Adapter, Correction

Float32 = NDArray[np.float32]
BATCH = 256
"""Tokens per step."""
RATE = 1e-3
"""Peak learning rate of AdamW; warmed up over 30 steps, then a cosine over the training."""
VOCABULARY = 8192
"""Most tokens that the distributions run over."""


def available() -> bool:
    """Whether torch is installed."""
    return importlib.util.find_spec("torch") is not None


def default_rank(hidden_size: int) -> int:
    """A quarter of the width, in whole blocks of 32: the adapter then reads half as much again as an affine one."""
    return max(32, hidden_size // 4 // 32 * 32)


def train(
    start: Adapter,
    statistics: tuple[Float32, Float32],
    hidden: Float32,
    readout: Float32,
    head: Float32,
    norm: Float32,
    passed: Callable[[int], float],
    rank: int,
    progress: Callable[[float, float], None] | None = None,
) -> Adapter:
    """An adapter that is ``start`` with a correction of ``rank``.

    ``statistics``: mean and deviation of the hidden states, [H] each; ``hidden``, ``readout`` [T, H]: the residual
    stream at the exit and the model's own normed state at the end; ``head`` [V, H]: rows of the tokens that count;
    ``norm`` [H]. ``passed`` tells after so many steps which share of the training is over; ``progress`` is called with
    (that share, loss).
    """
    import torch

    mean, deviation = (torch.from_numpy(x) for x in statistics)
    x, y, rows, scale = (torch.from_numpy(a) for a in (hidden, readout, head, norm))
    torch.manual_seed(0)
    parameters = _parameters(torch, start, mean, deviation, rank)
    optimizer = torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.01)
    step, loss_mean = 0, math.nan
    order, at = torch.randperm(len(x)), 0
    while (share := passed(step)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / 30) * (0.02 + 0.49 * (1 + math.cos(math.pi * share)))
        if at + BATCH > len(x):
            order, at = torch.randperm(len(x)), 0
        some = order[at : at + BATCH]
        at, step = at + BATCH, step + 1
        with torch.no_grad():
            wanted = (y[some] @ rows.T).softmax(-1)
        adapted = _apply(torch, parameters, (x[some] - mean) / deviation)
        logits = _normed(torch, adapted, scale) @ rows.T
        loss = -(wanted * logits.log_softmax(-1)).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = float(loss.detach())
        loss_mean = value if math.isnan(loss_mean) else 0.98 * loss_mean + 0.02 * value
        if progress:
            progress(share, loss_mean)
    return _folded([p.detach() for p in parameters], mean, deviation)


def within(seconds: float) -> Callable[[int], float]:
    """``passed`` for ``train``: by the clock, from now on."""
    begun = time.monotonic()
    return lambda _step: (time.monotonic() - begun) / seconds


def _parameters(torch: Any, start: Adapter, mean: Any, deviation: Any, rank: int) -> list[Any]:
    """W, b, U, u, D over standardised states."""
    weight, bias = torch.from_numpy(start.weight), torch.from_numpy(start.bias)
    h = len(bias)
    bound = 1 / math.sqrt(h)
    values = [
        weight * deviation,
        bias + weight @ mean,
        torch.empty(rank, h).uniform_(-bound, bound),
        torch.zeros(rank),
        torch.zeros(h, rank),
    ]
    return [torch.nn.Parameter(value.clone()) for value in values]


def _apply(torch: Any, parameters: list[Any], z: Any) -> Any:
    weight, bias, up, up_bias, down = parameters
    return z @ weight.T + bias + torch.nn.functional.silu(z @ up.T + up_bias) @ down.T


def _normed(torch: Any, x: Any, scale: Any) -> Any:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * scale


def _folded(parameters: list[Any], mean: Any, deviation: Any) -> Adapter:
    """Over raw states: ``W z = (W / deviation) x - (W / deviation) mean``."""
    weight, bias, up, up_bias, down = parameters
    weight, up = weight / deviation, up / deviation
    correction = Correction(up.numpy(), (up_bias - up @ mean).numpy(), down.numpy())
    return Adapter(weight.numpy(), (bias - weight @ mean).numpy(), correction)
