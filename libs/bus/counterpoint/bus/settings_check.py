"""Checks of the settings of services: `python -m counterpoint.bus.settings_check`.

Standard input has an object by service: the name of its settings class, `module:Class`, and its whole environment. A
service that reads files which its settings name has a function `configured_files.check_files`.
"""

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Mapping

from pydantic import ValidationError
from pydantic_settings import SettingsError

from counterpoint.bus.check_result import CheckResult, print_results
from counterpoint.bus.settings import BusSettings
from counterpoint.proto.errors import Permanent

_REMEDY = "correct the variable, or unset it"
_REMEDY_OF_FILE = "correct the variable, or the file that it names"


def examine(service: str, class_name: str, environment: Mapping[str, str]) -> Iterator[CheckResult]:
    """Yield a finding for each setting that the class refuses, one finding if it refuses none."""
    module, _, name = class_name.partition(":")
    settings_class: type[BusSettings] = getattr(importlib.import_module(module), name)
    os.environ.clear()
    os.environ.update(environment)
    check = f"settings of {service}"
    try:
        settings = settings_class()
        settings.tls()
        if importlib.util.find_spec(f"counterpoint.{service}.configured_files"):
            importlib.import_module(f"counterpoint.{service}.configured_files").check_files(settings)
    except ValidationError as wrong:
        for each in wrong.errors(include_input=False, include_url=False):
            field = ".".join(str(part) for part in each["loc"]).upper()
            yield CheckResult.failed(
                check, f"COUNTERPOINT_{field}: {each['msg'].removeprefix('Value error, ')}", _REMEDY
            )
    except SettingsError as wrong:
        field = str(wrong).partition('"')[2].partition('"')[0].upper()
        yield CheckResult.failed(check, f"COUNTERPOINT_{field}: is not valid JSON" if field else str(wrong), _REMEDY)
    except OSError as wrong:
        yield CheckResult.failed(check, f"COUNTERPOINT_NATS_CA: is no PEM file: {wrong.strerror}", _REMEDY)
    except Permanent as wrong:
        for problem in wrong.problems:
            yield CheckResult.failed(check, f"{problem.field}: {problem.problem}", _REMEDY_OF_FILE)
    else:
        yield CheckResult.ok(check, "valid")


def main() -> None:
    """Examine the settings on standard input."""
    services = json.load(sys.stdin)
    for service, (class_name, environment) in services.items():
        print_results(examine(service, class_name, environment))


if __name__ == "__main__":
    main()
