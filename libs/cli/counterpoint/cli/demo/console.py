"""The console after the demo: the stack of the story runs again until it is interrupted."""

import asyncio
import signal
from pathlib import Path

from counterpoint.cli.address import Address
from counterpoint.cli.api import ApiClient
from counterpoint.cli.commands.console import console_link
from counterpoint.cli.session import CommandSession
from counterpoint.local.stack import Stack


async def show_console(session: CommandSession, folder: Path, project: str) -> None:
    """Start the stack on `folder`, print the address of the console, and stop at SIGINT or SIGTERM."""
    stack = Stack(folder, http_port=0)
    interrupted = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupted.set)
    try:
        await stack.start()
        watching = asyncio.create_task(stack.watch())
        waiting = asyncio.create_task(interrupted.wait())
        with ApiClient(Address(stack.endpoints.http, stack.endpoints.token)) as api:
            url, valid_s = await asyncio.to_thread(console_link, api, project)
        shown = (
            f"\nThe console shows the story: {url}\n"
            f"The link signs a browser in once, within {valid_s // 60} minutes. Ctrl-C ends the demo."
        )
        (session.err if session.json else session.out).print(shown, markup=False, soft_wrap=True)
        try:
            await asyncio.wait({watching, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
        finally:
            watching.cancel()
            waiting.cancel()
    finally:
        await stack.stop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
