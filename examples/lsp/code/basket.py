"""A shopping basket: something for a language server to read."""

from dataclasses import dataclass, field


@dataclass
class Basket:
    """What somebody is about to buy."""

    prices: dict[str, int] = field(default_factory=dict)

    def total(self) -> int:
        """The sum of all prices, in cents."""
        return sum(self.prices.values())
