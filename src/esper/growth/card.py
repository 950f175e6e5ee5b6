"""The card of a saved network, for people: what grew where, what it costs, how to load it."""

from collections.abc import Sequence

from esper.growth.harvest import Fossil

PAGE = """# A grown network

A `{kind}` of {before:,} parameters, in which {count} grew while it was trained. It has {after:,} parameters now.

{lines}
Build the host as it was before it grew and load the network into it; it comes back in evaluation mode:

```python
import esper
host = {kind}(...)
network = esper.load({directory!r}, host)
```

`weights.safetensors` has the weights, `architecture.json` says what grew where. Neither can run code.
"""


def card(kind: str, directory: str, parameters: int, fossils: Sequence[tuple[Fossil, int]]) -> str:
    """The text for a network of the class `kind`; fossils come with how many of its `parameters` they have."""
    return PAGE.format(
        kind=kind,
        directory=directory,
        before=parameters - sum(own for _, own in fossils),
        after=parameters,
        count=f"{len(fossils) or 'no'} module{'' if len(fossils) == 1 else 's'}",
        lines="".join(_line(fossil, own) for fossil, own in fossils),
    )


def _line(fossil: Fossil, parameters: int) -> str:
    place = f"behind `{fossil.slot}`, on {fossil.channels} {fossil.topology} channels"
    blend = f"blended in by {fossil.style.operator.name.lower()} at strength {fossil.alpha:.2g}"
    return f"- `{fossil.blueprint}` {place}, {blend}: {parameters:,} parameters\n"
