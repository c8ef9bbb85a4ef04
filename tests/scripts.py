"""Scripts of the repository that are in no package, as modules."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load_script(path: Path) -> ModuleType:
    """Run a script, and return it as a module that is named by its folder and file."""
    name = f"{path.parent.name}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module
