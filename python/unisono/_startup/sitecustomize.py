"""Python imports this module at its start if its folder is on the path, as set by `unisono run
--backend-alias` and `unisono alias`. Then it runs another module of this name, if any."""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _run_the_next() -> None:
    """Returns the sitecustomize that Python would have imported without this one."""
    others = [folder for folder in sys.path if os.path.abspath(folder) != _FOLDER]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("UNISONO_BACKEND_ALIAS"):
    import _unisono_alias

    _unisono_alias.patch_when_imported()
_run_the_next()
