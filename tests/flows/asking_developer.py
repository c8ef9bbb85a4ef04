"""The developer, asking a model before it does what it does anyway: `python asking_developer.py`."""

from counterpoint import bus
from counterpoint.bus import Service
from counterpoint.client import Memory
from counterpoint.developer.handlers import handle_delegated
from counterpoint.developer.settings import DeveloperSettings
from counterpoint.proto.memory import Commit
from counterpoint.proto.tasks import TaskDelegated


def run() -> None:
    """The process."""
    settings = DeveloperSettings()
    gateway = settings.gateway()
    service = Service("developer", settings)

    async def ask_first(message: TaskDelegated, memory: Memory) -> Commit:
        messages = [{"role": "user", "content": message.task.description}]
        await gateway.generate(memory, messages, key="answer", deadline_s=60)
        return await handle_delegated(message, memory)

    service.on(TaskDelegated)(ask_first)
    bus.run(service.run())


if __name__ == "__main__":
    run()
