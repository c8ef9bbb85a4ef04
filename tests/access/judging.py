"""The judge's verdict on one text."""

from counterpoint.guard.judge import Judgement, judge
from counterpoint.guard.policy import policy


def judge_text(text: str, label: int) -> Judgement:
    """The verdict on a text by this build's policy; it is the field `text` of the body."""
    return judge(policy(), {"text": text}, ("text",), label)
