"""How large the largest tensor of a computation is."""

from __future__ import annotations

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LargestTensor(TorchDispatchMode):
    """Within the block ``numel`` is of the largest tensor that an operation returned."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        # a view that repeats numbers holds no more of them
        sizes = [
            leaf.untyped_storage().nbytes() // leaf.element_size()
            for leaf in tree_leaves(out)
            if isinstance(leaf, Tensor)
        ]
        self.numel = max(self.numel, *sizes, 0)
        return out
