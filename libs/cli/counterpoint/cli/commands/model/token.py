"""`counterpoint model token`: print a token for a tool that calls models, such as an editor."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.options import check_id
from counterpoint.cli.session import CommandSession


@command("token", Panel.OPERATE, "counterpoint model token TASK --minutes 120")
def token(
    session: CommandSession,
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task with a budget.", callback=check_id)],
    minutes: Annotated[int, typer.Option("--minutes", min=1, max=480, help="The life of the token.")] = 60,
) -> None:
    """Print the variables with which an editor or another tool calls models for a task, paid by its budget.

    The token ends with the task, and `counterpoint revoke` ends it before.
    """
    with session.connect() as api:
        made = api.post(f"/v1/tasks/{task}/model-token", {"minutes": minutes}, project=session.project)
    variables = {
        "OPENAI_BASE_URL": made["base_url"],
        "OPENAI_API_BASE": made["base_url"],
        "OPENAI_API_KEY": made["token"],
    }
    session.show(made, lambda: "\n".join(f"export {name}={value}" for name, value in variables.items()))
