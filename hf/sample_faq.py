"""Questions and answers made by this project, the same bytes on every machine, to try the causal arm on.

A lending library answers readers: each thing it lends is asked about in the same five ways.
"""

from __future__ import annotations

THINGS = {
    "novels": ("three weeks", "ten", "on the ground floor"),
    "comics": ("two weeks", "twenty", "beside the stairs"),
    "atlases": ("one week", "two", "in the map room"),
    "dictionaries": ("four days", "three", "in the reading room"),
    "films": ("five days", "four", "on the first floor"),
    "records": ("ten days", "six", "in the music room"),
    "scores": ("five weeks", "eight", "behind the piano"),
    "board games": ("one month", "one", "in the hall"),
}
"""What is lent -> for how long, how many at a time, where it stands."""

QUESTIONS = {
    "How long can I keep {thing}?": "You can keep {thing} for {time}. We write to you two days before.",
    "How many {thing} can I borrow?": "You can borrow up to {number} {thing} at a time.",
    "Where do I find {thing}?": "You find {thing} {place}. Ask at the desk if the shelf is empty.",
    "What does it cost to return {thing} late?": "After {time} we ask for ten cents a day for {thing}.",
    "Can I reserve {thing}?": "Yes. Reserve {thing} at the desk and collect them {place}.",
}


def pairs() -> list[dict[str, str]]:
    """All pairs: `question` and `answer`."""
    return [
        {"question": question.format(thing=thing),
         "answer": answer.format(thing=thing, time=time, number=number, place=place)}
        for thing, (time, number, place) in THINGS.items()
        for question, answer in QUESTIONS.items()
    ]  # fmt: skip
