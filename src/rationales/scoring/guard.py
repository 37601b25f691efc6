"""One thread at a time inside a model, in evaluation mode; the model is left as it was found.

A forward pass here needs things that belong to the model and not to the call: hooks on its last
layer, a bias of other positions, another attention implementation, evaluation mode. Threads may
share the model; so may two explainers, or two models that have modules in common (an adapter and
its base). One lock therefore covers every pass of every model, of scorers and rankers alike. It is
given up between two passes: threads take turns, pass by pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

LOCK = threading.RLock()
"""Held by whoever runs a model, or sets something on a model or a tokenizer that others see."""

_THREAD = threading.local()


@contextmanager
def stoppable(check: Callable[[], None]) -> Iterator[None]:
    """Within it, this thread calls ``check`` before each forward pass, which may raise to stop."""
    _THREAD.check = check
    try:
        yield
    finally:
        del _THREAD.check


def check_stopped() -> None:
    """Raise what ``stoppable`` has this thread raise, if it is to stop."""
    if (check := getattr(_THREAD, "check", None)) is not None:
        check()


@contextmanager
def at_rest(model: Any) -> Iterator[None]:
    """The model to this thread alone, in evaluation mode; the mode is put back at the end."""
    with LOCK:
        check_stopped()
        # Module by module: model.train() would also change the ones that were in evaluation mode.
        training = [module for module in model.modules() if module.training]
        try:
            for module in training:
                module.training = False
            yield
        finally:
            for module in training:
                module.training = True


def signature(model: Any) -> Hashable:
    """A value that changes if the model's answers may: its weights, its hooks, its adapters.

    Weights that are changed behind torch's back (``weight.data.mul_``) are not seen.
    """
    from torch.nn.modules import module as all_modules

    weights: list[tuple[int, int]] = []
    hooks = [tuple(all_modules._global_forward_hooks), tuple(all_modules._global_forward_pre_hooks)]
    adapters: list[str] = []
    for module in model.modules():  # once: walking through a model takes as long as all the rest
        for tensors in (module._parameters, module._buffers):
            # Quantised and offloaded weights have no address of their own.
            held = [w for w in tensors.values() if w is not None]
            weights += [(w.data_ptr() or id(w), w._version) for w in held]
        hooks += [tuple(module._forward_hooks), tuple(module._forward_pre_hooks)]
        if "_disable_adapters" in vars(module):  # a layer of peft
            settings = ("_disable_adapters", "_active_adapter", "merged_adapters", "scaling")
            adapters.append(repr([getattr(module, name, None) for name in settings]))
    return tuple(weights), tuple(hooks), tuple(adapters)
