"""A shopping basket: sample code for the language server."""

from dataclasses import dataclass, field


@dataclass
class Basket:
    """The items to buy."""

    prices: dict[str, int] = field(default_factory=dict)

    def total(self) -> int:
        """The sum of all prices, in cents."""
        return sum(self.prices.values())
