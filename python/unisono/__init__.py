"""Unisono for Python: a backend of torch.distributed.

Importing the package registers the backend "unisono" for CPU tensors.
"""

from __future__ import annotations

import torch

from ._build_info import TORCH_VERSION as _TORCH_VERSION
from ._build_info import VERSION as __version__

# The extension uses the symbols of one torch release; another release would fail with an unclear
# error.
if torch.__version__.split("+")[0] != _TORCH_VERSION:
    raise ImportError(
        f"this unisono {__version__} was built for torch {_TORCH_VERSION}, but torch "
        f"{torch.__version__} is installed: install torch=={_TORCH_VERSION}, or build unisono anew "
        "with `pip install --no-build-isolation` from its sources"
    )

from . import ddp
from ._backend import Options, init_process_group
from ._C import Backend, SlurmJob, Store, Watch, slurm_job
from ._checkpoint import check_can_save, check_consistent, load_checkpoint, save_checkpoint
from ._memory import empty, is_symmetric
from ._progress import Progress
from ._sampler import ResumableSampler
from ._spawn import spawn
from ._tensor_files import CheckpointSaver, latest_checkpoint, load_state, save_state

# The folder of an installed package, for CMAKE_PREFIX_PATH of C++ projects.
cmake_prefix_path: str = __path__[0]

__all__ = [
    "Backend",
    "CheckpointSaver",
    "Options",
    "Progress",
    "ResumableSampler",
    "SlurmJob",
    "Store",
    "Watch",
    "__version__",
    "check_can_save",
    "check_consistent",
    "cmake_prefix_path",
    "ddp",
    "empty",
    "init_process_group",
    "is_symmetric",
    "latest_checkpoint",
    "load_checkpoint",
    "load_state",
    "save_checkpoint",
    "save_state",
    "slurm_job",
    "spawn",
]
