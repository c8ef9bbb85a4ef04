"""A house without models outside has no gateway and knows nothing of one."""

import subprocess
import sys

from flows.providers import has_litellm

from counterpoint.local.stack import Stack
from counterpoint.local.state_file import is_free, read_state


async def test_where_nothing_is_configured_there_is_no_gateway(stack: Stack) -> None:
    assert is_free(read_state(stack.data_dir / "state.json").ports["gateway"])
    assert not has_litellm(stack.endpoints.services["manager"].pid)


def test_litellm_is_not_imported_before_a_model_is_called() -> None:
    modules = "counterpoint.manager.main, counterpoint.manager.gateway.api"
    look = f"import sys, {modules}; sys.exit('litellm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", look], check=False).returncode == 0
