"""The event loop on which all async functions of a worker run, on a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading

from . import responses
from .errors import Cancelled

TYPE_CHECKING = False  # the import of typing would slow the start of every worker
if TYPE_CHECKING:
    from typing import Any, Callable, Coroutine, Iterable, Optional

    from .methods import Method


class EventLoop:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.on_exit: Callable[[BaseException], None] = lambda end: None  # called with a SystemExit or KeyboardInterrupt that ended the loop
        self.thread = threading.Thread(target=self._run, name="tempool-async", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while True:
            try:
                self.loop.run_forever()
                return
            except BaseException as end:  # of a task or a callback of the program; the calls in flight continue
                self.on_exit(end)

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        """Runs a coroutine and returns its concurrent.futures.Future."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def wait(self, futures: Iterable[concurrent.futures.Future[Any]]) -> None:
        """Waits until futures of start() are done."""
        concurrent.futures.wait(futures)

    def serve(self, *call: Any) -> Coroutine[Any, Any, None]:
        """Returns the coroutine that runs a handler and sends its response, like responses.serve()."""
        return serve_async(*call)

    def current_task(self) -> Optional[asyncio.Task[Any]]:
        return asyncio.current_task(self.loop)

    def call(self, fn: Callable[[], Any]) -> None:
        """Calls fn on the loop's thread, soon."""
        self.loop.call_soon_threadsafe(fn)

    def close(self) -> None:
        """Cancels the tasks that still run, waits for them, and ends the thread."""
        self.start(self._cancel_tasks()).result()
        self.call(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def _cancel_tasks(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.loop.shutdown_asyncgens()


async def serve_async(connection: Any, method: Method, id: int, body: bytes) -> None:
    """responses.serve() for a method that is an async function."""
    try:
        if method.streams:
            payload = await _stream_async(connection, method, id, body)
        else:
            payload = method.to_payload(await method.call(body))
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        by_caller = isinstance(error, asyncio.CancelledError) and connection.is_cancelled(id)
        responses.send_exception(connection, id, Cancelled() if by_caller else error)
    else:
        responses.send_result(connection, id, payload)


async def _stream_async(connection: Any, method: Method, id: int, body: bytes) -> bytes:
    chunks = method.call(body)
    headers = method.chunk_headers  # of the first one
    try:
        async for value in chunks:
            responses.send_chunk(connection, id, method.to_chunk(value), headers)
            headers = b""
            await asyncio.sleep(0)  # lets other calls run and a cancel arrive, also during a generator that never waits
    finally:
        await chunks.aclose()
    return b""
