import asyncio
from typing import Iterator

import tempool


@tempool.method
def count(n: int) -> Iterator[int]:
    yield from range(n)


@tempool.method
async def greet(name: str) -> str:
    await asyncio.sleep(0.01)
    return "Hello, %s!" % name


tempool.run()
