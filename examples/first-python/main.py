import asyncio

from tempool.client.aio import AsyncClient


async def main() -> None:
    async with AsyncClient() as client:
        pool = client.pool("first-python")
        print(await pool.call("greet", {"name": "Ada"}))
        print([n async for n in pool.stream("count", [3])])
        people = [{"name": "Bob"}, {"name": "Eve"}, {"nom": "Zoé"}]
        async for result in pool.map("greet", people, on_progress=lambda done: print(done, "done")):
            print(result.value if result.ok else "failed: %s" % result.error)
        async with await pool.lease() as lease:  # one process for several calls
            print(await lease.call("greet", ["again"]))


asyncio.run(main())
