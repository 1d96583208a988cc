"""The wheel's dependencies, for scikit-build-core: the release of torch that it is built against,
since the module's symbols are those of one."""

from __future__ import annotations

from importlib import metadata
from typing import Any


def dynamic_metadata(field: str, settings: dict[str, Any]) -> list[str]:
    if field != "dependencies" or settings:
        raise ValueError(f"torch_of_the_build gives dependencies, without settings; not {field}")
    release = metadata.version("torch").partition("+")[0]  # Without how it was built: "+cpu".
    return [f"torch=={release}"]
