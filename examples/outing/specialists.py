"""Two agents that each know one thing: the weather of a day, and places to go to."""

from __future__ import annotations

from a2a_sync import A2AApp, Agent, AgentSkill, Message, RequestContext

_FORECASTS = {"friday": "rain", "saturday": "sun", "sunday": "wind"}
_PLACES = ((4, "the small tower"), (20, "the botanical garden"), (200, "the open-air theatre"))

weather = Agent(
    "weather",
    description="Knows the weather of the weekend",
    skills=[AgentSkill.of("forecast", "Forecasts the weather of a day", tags=["weather"], examples=["Saturday"])],
)
places = Agent(
    "places",
    description="Knows places to go to",
    skills=[AgentSkill.of("find_place", "Finds a place for a number of people", tags=["leisure"], examples=["6"])],
)


@weather.message
def forecast(message: Message, context: RequestContext) -> str:
    """The weather of the first day that is named."""
    for word in message.text.lower().split():
        if word.strip(".,") in _FORECASTS:
            return f"{word.strip('.,').capitalize()}: {_FORECASTS[word.strip('.,')]}"
    return "Unknown."


@places.message
def find_place(message: Message, context: RequestContext) -> str:
    """The smallest place that is large enough."""
    people = next((int(word) for word in message.text.split() if word.isdigit()), 1)
    fitting = [name for size, name in _PLACES if size >= people]
    return f"A place for {people}: {fitting[0]}" if fitting else "There is no place so large."


weather_app = A2AApp(weather)
places_app = A2AApp(places)
