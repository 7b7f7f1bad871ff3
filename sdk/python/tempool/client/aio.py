"""Call Tempool pools from asyncio. Needs httpx, which the extra "async" installs.

    async with AsyncClient() as client:
        print(await client.pool("python").call("square", {"x": 12}))

It has the rules of Client: its settings, balancing, retries, errors. Cancelling a task cancels its call at the worker.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import time
from typing import (
    Any, AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Dict, Iterable, List, Mapping, Optional, Set, Type, TypeVar, Union,
)

import httpx

from .balancer import Attempts
from .calls import Answer, Lines, Options, call_headers, deadline_of, decode, encode, encode_params, segment
from .client import DEFAULT_CONCURRENCY, MAX_CONCURRENCY, Settings, usual_concurrency
from .endpoint import CONNECT_TIMEOUT, IDLE_TIMEOUT, MAX_IDLE, SILENT, UNREACHABLE, Address, Gateway, grace
from .errors import DeadlineExceeded, Invalid, LeaseNotFound, SessionNotFound, TempoolError, Unavailable, WorkerCrashed, WorkerError, error_of
from .lease import RENEW_TIMEOUT, Checkout, Granted, checkin_query, ttl_ms
from .map import WINDOW, Result
from .sessions import Session, session_request

T = TypeVar("T")


class _Endpoint(Gateway):
    """One gateway and its connections."""

    def __init__(self, endpoint: str, token: Optional[str], tls: Optional[ssl.SSLContext]) -> None:
        address = Address(endpoint)
        super().__init__(endpoint)
        headers = {"Authorization": "Bearer " + token} if token and address.private else {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=MAX_IDLE, keepalive_expiry=IDLE_TIMEOUT)
        transport = httpx.AsyncHTTPTransport(verify=tls or True, uds=address.socket, limits=limits)
        self._http = httpx.AsyncClient(transport=transport, base_url=address.url, headers=headers, trust_env=False)

    async def request(self, method: str, path: str, headers: Dict[str, str], body: bytes, deadline: float) -> _Reply:
        deadline += grace(headers)
        patience = max(0.001, deadline - time.monotonic())
        timeout = httpx.Timeout(patience, connect=CONNECT_TIMEOUT, pool=None)
        request = self._http.build_request(method, path, headers=httpx.Headers(headers, encoding="utf-8"), content=body, timeout=timeout)
        try:
            response = await _within(patience, self._http.send(request, stream=True))
        except (httpx.ConnectError, httpx.ConnectTimeout, ssl.SSLCertVerificationError) as e:
            self.avoid(UNREACHABLE)
            text = "cannot connect to the gateway at %s: %s; is an agent running there?" % (self.endpoint, e or type(e).__name__)
            raise Unavailable(text, "unavailable", False) from e
        except (asyncio.TimeoutError, httpx.TimeoutException) as e:
            self.avoid(SILENT)
            raise DeadlineExceeded("deadline exceeded: no answer from the gateway at %s" % self.endpoint, "deadline_exceeded", True) from e
        except (httpx.TransportError, OSError) as e:
            text = "the gateway at %s closed the connection before it answered: %s" % (self.endpoint, e or type(e).__name__)
            raise Unavailable(text, "unavailable", True) from e
        self.answered()
        reply = _Reply(self, response, deadline)
        if response.status_code < 300:
            return reply
        raise error_of(response.status_code, response.reason_phrase, response.headers, await reply.read())

    async def close(self) -> None:
        await self._http.aclose()


class _Reply:
    """An answer whose body has not been read yet."""

    def __init__(self, gateway: _Endpoint, response: httpx.Response, deadline: float) -> None:
        self.gateway = gateway
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._pieces = response.aiter_raw()
        self._deadline = deadline

    async def read_some(self) -> bytes:
        """Returns the next available bytes; b"" at the end."""
        try:
            patience = max(0.001, self._deadline - time.monotonic())
            return await _within(patience, self._pieces.__anext__())
        except StopAsyncIteration:
            return b""
        except (asyncio.TimeoutError, httpx.TimeoutException) as e:
            await self.close()
            raise DeadlineExceeded("deadline exceeded before the answer was complete", "deadline_exceeded", True) from e
        except (httpx.TransportError, OSError) as e:
            await self.close()
            text = "the answer was cut off because its worker or gateway ended: %s" % (e or type(e).__name__)
            raise WorkerCrashed(text, "worker_crashed", True) from e
        except BaseException:
            await self.close()
            raise

    async def read(self) -> bytes:
        pieces: List[bytes] = []
        while True:
            piece = await self.read_some()
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)

    async def close(self) -> None:
        await self._response.aclose()


class _Balancer:
    """Sends requests to the endpoints in turn, and retries them as Balancer does."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._endpoints = [_Endpoint(endpoint, settings.token, settings.tls) for endpoint in settings.endpoints]
        self._others: Dict[str, _Endpoint] = {}
        self._next = random.randrange(len(self._endpoints))

    async def request(
        self, method: str, path: str, headers: Dict[str, str], body: Union[bytes, Callable[[], bytes]], deadline: float, idempotent: bool = False,
        only: Optional[_Endpoint] = None, first: Optional[_Endpoint] = None, retry_until: Optional[float] = None,
    ) -> _Reply:
        self._next = (self._next + 1) % len(self._endpoints)
        order = [only] if only else self._endpoints[self._next:] + self._endpoints[:self._next]
        attempts = Attempts(order, self._settings.retries, idempotent, deadline, retry_until, first)
        while True:
            gateway = attempts.next(headers)
            try:
                return await gateway.request(method, path, headers, body() if callable(body) else body, deadline)
            except TempoolError as e:
                pause = attempts.failed(gateway, e)
            if pause:
                await asyncio.sleep(pause)

    async def at(self, endpoint: str) -> _Endpoint:
        """Returns the gateway that an answer named; with a token only one of the roster, as Balancer.at does."""
        for known in self._endpoints:
            if known.endpoint == endpoint:
                return known
        if endpoint not in self._others:
            if self._settings.token and endpoint not in await self._roster():
                text = "the gateway at %s is not in the roster, so it does not get the token; add it to the client's endpoints" % endpoint
                raise Unavailable(text, "unavailable", False)
            try:
                self._others[endpoint] = _Endpoint(endpoint, self._settings.token, self._settings.tls)
            except ValueError as e:
                raise Unavailable(str(e), "unavailable", False) from e
        return self._others[endpoint]

    async def _roster(self) -> Set[str]:
        try:
            reply = await self.request("GET", "/v1/workers", {}, b"", time.monotonic() + RENEW_TIMEOUT, True)
            return {worker.get("endpoint") for worker in json.loads(await reply.read())}
        except (TempoolError, ValueError):
            return set()

    async def close(self) -> None:
        for gateway in self._endpoints + list(self._others.values()):
            await gateway.close()


class AsyncStream:
    """A streamed answer: an async iterator, and a context manager that cancels the call at its end. The call starts with either, and worker and
    incarnation then name the process that answers."""

    worker, incarnation = "", 0

    def __init__(self, send: Callable[[], Awaitable[_Reply]], raw: bool) -> None:
        self._send: Optional[Callable[[], Awaitable[_Reply]]] = send
        self._reply: Optional[_Reply] = None
        self._items = self._pieces() if raw else self._values()

    async def _pieces(self) -> AsyncGenerator[Any, None]:
        await self._start()
        while self._reply is not None:
            piece = await self._reply.read_some()
            if not piece:
                return
            yield piece

    async def _values(self) -> AsyncGenerator[Any, None]:
        lines = Lines()
        async for piece in self._pieces():
            for value in lines.values(piece):
                yield value
        for value in lines.last():
            yield value

    async def _start(self) -> None:
        send, self._send = self._send, None
        if send is not None:
            self._reply = await send()
            self.worker = self._reply.headers.get("Tempool-Worker", "")
            self.incarnation = int(self._reply.headers.get("Tempool-Incarnation") or 0)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        return await self._items.__anext__()

    async def __aenter__(self) -> AsyncStream:
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cancels the call unless it has ended."""
        self._send = None
        await self._items.aclose()
        if self._reply is not None:
            await self._reply.close()


class AsyncCaller:
    """Methods to make a call, with the arguments of Caller's."""

    async def call(
        self, method: str, params: Any = None, *, timeout: Optional[float] = None, session: Optional[str] = None,
        priority: Optional[int] = None, headers: Optional[Mapping[str, str]] = None, key: Optional[str] = None,
    ) -> Any:
        """Calls a method whose parameters and result are JSON, and returns the result."""
        return (await self._exchange(method, encode_params(params), Options(timeout, session, priority, headers, key))).json()

    async def call_raw(
        self, method: str, body: bytes = b"", *, timeout: Optional[float] = None, session: Optional[str] = None,
        priority: Optional[int] = None, headers: Optional[Mapping[str, str]] = None, key: Optional[str] = None,
    ) -> bytes:
        """Calls a method with bytes and returns bytes."""
        return (await self._exchange(method, body, Options(timeout, session, priority, headers, key))).body

    async def exchange(
        self, method: str, body: bytes = b"", *, timeout: Optional[float] = None, session: Optional[str] = None,
        priority: Optional[int] = None, headers: Optional[Mapping[str, str]] = None, key: Optional[str] = None,
    ) -> Answer:
        """Like call_raw, but returns the Answer, which names the worker."""
        return await self._exchange(method, body, Options(timeout, session, priority, headers, key))

    def stream(
        self, method: str, params: Any = None, *, raw: bool = False, timeout: Optional[float] = None, session: Optional[str] = None,
        priority: Optional[int] = None, headers: Optional[Mapping[str, str]] = None, key: Optional[str] = None,
    ) -> AsyncStream:
        """Calls a method and returns an AsyncStream of the JSON values that the worker yields, and of its result at the end if it has one. With
        raw=True, params are bytes and the iterator returns bytes as they arrive."""
        body = (params or b"") if raw else encode_params(params)
        options = Options(timeout, session, priority, headers, key)
        return AsyncStream(lambda: self._send(method, body, options), raw)

    async def _exchange(self, method: str, body: bytes, options: Options) -> Answer:
        reply = await self._send(method, body, options)
        return Answer(await reply.read(), reply.headers)

    async def _send(self, method: str, body: bytes, options: Options) -> _Reply:
        raise NotImplementedError


class AsyncClient:
    """A client of one or more gateways for one event loop. The arguments are those of Client. Close it, or use it as a context manager."""

    def __init__(
        self, endpoint: Union[str, Iterable[str], None] = None, *, token: Optional[str] = None, token_file: Optional[str] = None,
        ca_file: Optional[str] = None, cert_file: Optional[str] = None, key_file: Optional[str] = None, tls: Optional[ssl.SSLContext] = None,
        timeout: float = 60.0, retries: int = 8,
    ) -> None:
        self.timeout: float = timeout
        self.balancer: _Balancer = _Balancer(Settings(endpoint, token, token_file, ca_file, cert_file, key_file, tls, timeout, retries))
        #: sessions in the store that the pools of a host share
        self.sessions = AsyncSessions(self)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes idle connections. It does not check in leases."""
        await self.balancer.close()

    def pool(self, name: str) -> AsyncPool:
        """Returns the pool of this name without checking that it exists."""
        return AsyncPool(self, name)

    async def pools(self) -> List[Dict[str, Any]]:
        """Returns all pools with their workers."""
        pools: List[Dict[str, Any]] = await self.read("/v1/pools")
        return pools

    async def workers(self) -> List[Dict[str, Any]]:
        """Returns all workers with their state and metrics."""
        workers: List[Dict[str, Any]] = await self.read("/v1/workers")
        return workers

    async def read(self, path: str) -> Any:
        """Returns the decoded answer to a GET of a path, for endpoints without a method here."""
        reply = await self.balancer.request("GET", path, {}, b"", time.monotonic() + self.timeout, True)
        return decode(await reply.read())


class AsyncPool(AsyncCaller):
    """A pool: each call goes to a free worker and waits for one if necessary."""

    def __init__(self, client: AsyncClient, name: str, below: str = "") -> None:
        self.name = name
        self._client = client
        self._pool_path = "/v1/pools/" + segment(name, "a pool name")
        self._path = self._pool_path + below
        #: sessions of this pool's calls
        self.sessions = AsyncSessions(client, name)

    def worker(self, number: int) -> AsyncCaller:
        """Returns the worker with this number, from 0, for calls that must reach this one."""
        if not isinstance(number, int) or number < 0:
            raise Invalid("a worker's number must be an integer from 0, not %r" % (number,), "invalid")
        return AsyncPool(self._client, self.name, "/workers/%d" % number)

    async def status(self) -> Dict[str, Any]:
        """Returns the pool: pool, size, ready, workers (each with state and metrics)."""
        status: Dict[str, Any] = await self._client.read(self._pool_path)
        return status

    async def map(
        self, method: str, items: Union[Iterable[Any], AsyncIterable[Any]], *, ordered: bool = True, concurrency: Optional[int] = None,
        on_progress: Optional[Callable[[int], None]] = None, timeout: Optional[float] = None, session: Optional[str] = None,
        priority: Optional[int] = None, headers: Optional[Mapping[str, str]] = None, key: Optional[str] = None,
    ) -> AsyncGenerator[Result, None]:
        """Like Pool.map, as an async generator; items may be async, too. Closing it cancels the calls in flight and the wait for an item."""
        if concurrency is not None and not 1 <= concurrency <= MAX_CONCURRENCY:
            raise Invalid("concurrency must be from 1 to %d, not %r" % (MAX_CONCURRENCY, concurrency), "invalid")
        limit = concurrency or await self._usual_concurrency()
        options = Options(timeout, session, priority, headers, key)

        async def one(index: int, item: Any) -> Result:
            try:
                return Result(index, item, (await self._exchange(method, encode_params(item), options)).json())
            except TempoolError as e:
                return Result(index, item, error=e)

        source = items if isinstance(items, AsyncIterable) else _each(items)
        running: Set[asyncio.Task[Optional[Result]]] = set()  # the calls, and what starts them
        ended: asyncio.Queue[asyncio.Task[Optional[Result]]] = asyncio.Queue()
        finished: Dict[int, Result] = {}
        room = asyncio.Event()
        taken = yielded = done = 0

        def start(step: Coroutine[Any, Any, Optional[Result]]) -> None:
            task = asyncio.ensure_future(step)
            running.add(task)
            task.add_done_callback(ended.put_nowait)

        async def start_calls() -> None:
            nonlocal taken
            async for item in source:
                start(one(taken, item))
                taken += 1
                while len(running) > limit or taken - yielded >= WINDOW * limit:
                    room.clear()
                    await room.wait()

        try:
            start(start_calls())
            while True:
                room.set()
                ready = yielded if ordered else next(iter(finished), -1)
                if ready in finished:
                    yielded += 1
                    yield finished.pop(ready)
                elif running:
                    task = await ended.get()
                    running.remove(task)
                    result = task.result()
                    if result is not None:
                        finished[result.index] = result
                        done += 1
                        if on_progress is not None:
                            on_progress(done)
                else:
                    return
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _usual_concurrency(self) -> int:
        try:
            return usual_concurrency(await self.status())
        except TempoolError:
            return DEFAULT_CONCURRENCY  # the token may not have the right read

    async def lease(
        self, ttl: Optional[float] = None, *, holder: Optional[str] = None, session: Optional[str] = None,
        wait: Optional[float] = None, key: Optional[str] = None,
    ) -> AsyncLease:
        """Waits for a free worker and checks it out; the arguments are those of Pool.lease. async with await pool.lease() as lease: …"""
        checkout = Checkout(ttl, holder, session, self._client.timeout if wait is None else wait, key)
        reply = await self._client.balancer.request(
            "POST", self._pool_path + "/leases", {"Content-Type": "application/json"}, checkout.body, checkout.until + self._client.timeout,
            retry_until=checkout.until)
        return AsyncLease(self._client, reply.gateway, checkout.granted(await reply.read()), ttl)

    async def _send(self, method: str, body: bytes, options: Options) -> _Reply:
        path = "%s/call/%s" % (self._path, segment(method, "a method name", slashes=True))
        return await self._client.balancer.request("POST", path, call_headers(options), body, deadline_of(options.timeout, self._client.timeout))


class AsyncLease(Granted, AsyncCaller):
    """The exclusive right to one worker: all calls under it reach the same process. AsyncPool.lease() returns one.

    A task renews the lease until it is closed: at the end of an async with block, with outcome "error" if the block raised.
    """

    def __init__(self, client: AsyncClient, gateway: _Endpoint, granted: Dict[str, Any], ttl: Optional[float]) -> None:
        super().__init__(granted, ttl)
        self._client = client
        self._gateway = gateway
        self._closed = self._checked_in = False
        self._once = asyncio.Lock()  # guards _checked_in
        self._renewer = asyncio.ensure_future(self._renew_until_closed())

    async def __aenter__(self) -> AsyncLease:
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], _: object) -> None:
        if kind is None:
            await self.aclose()
            return
        try:
            await self.aclose("error", error)
        except TempoolError:
            pass  # the block's exception matters more, and the lease expires anyway

    async def notify(self, method: str, params: Any = None, *, timeout: Optional[float] = None, headers: Optional[Mapping[str, str]] = None) -> None:
        """Sends a notification, which the worker does not answer."""
        await (await self._as_holder("notify", method, encode_params(params), Options(timeout, headers=headers))).read()

    async def renew(self, ttl: Optional[float] = None) -> None:
        """Extends the lease to ttl seconds from now; None means the requested ttl. The background task does this, too."""
        began = time.monotonic()
        ttl = self._ttl if ttl is None else ttl
        body = encode({} if ttl is None else {"ttl_ms": ttl_ms(ttl)})
        reply = await self._request("PUT", self._path, {"Content-Type": "application/json"}, body, began + self._renew_timeout(), True)
        self._until = began + decode(await reply.read())["ttl_ms"] / 1000

    async def aclose(self, outcome: str = "ok", error: Union[str, BaseException, None] = None) -> None:
        """Checks the worker in; see Lease.close."""
        self._closed = True
        self._renewer.cancel()
        await asyncio.gather(self._renewer, return_exceptions=True)
        async with self._once:
            if not self._checked_in:
                deadline = time.monotonic() + self._client.timeout
                await (await self._request("DELETE", self._path + checkin_query(outcome, error), {}, b"", deadline, True)).read()
                self._checked_in = True

    async def _send(self, method: str, body: bytes, options: Options) -> _Reply:
        return await self._as_holder("call", method, body, options)

    async def _as_holder(self, verb: str, method: str, body: bytes, options: Options) -> _Reply:
        self._check(self._closed)
        path = "%s/%s/%s" % (self._path, verb, segment(method, "a method name", slashes=True))
        return await self._request("POST", path, call_headers(options, self.session, self.key), body, deadline_of(options.timeout, self._client.timeout), False)

    async def _request(self, method: str, path: str, headers: Dict[str, str], body: bytes, deadline: float, idempotent: bool) -> _Reply:
        headers = dict(headers, **self._token)
        try:
            return await self._client.balancer.request(method, path, headers, body, deadline, idempotent, first=self._gateway)
        except LeaseNotFound as e:
            if e.endpoint is None or e.endpoint == self._gateway.endpoint:
                raise
            gateway = await self._client.balancer.at(e.endpoint)
        try:
            reply = await self._client.balancer.request(method, path, headers, body, deadline, idempotent, gateway)
        except WorkerError:
            self._gateway = gateway
            raise
        self._gateway = gateway  # not before an answer of the worker: it may be unreachable from here
        return reply

    async def _renew_until_closed(self) -> None:
        pause: Optional[float] = self._pause()
        while pause is not None:
            await asyncio.sleep(pause)
            try:
                await self.renew()
                pause = self._pause()
            except TempoolError as e:
                pause = self._pause_after(e)


class AsyncSessions:
    """The session store behind the gateways; see Sessions."""

    def __init__(self, client: AsyncClient, pool: Optional[str] = None) -> None:
        self._client = client
        self._query = "" if pool is None else "?pool=" + segment(pool, "a pool name")

    async def get(self, id: str) -> Session:
        return await self._request("GET", id)

    async def new(self, **content: Any) -> Session:
        return await self._request("POST", None, content)

    async def put(self, id: str, data: Optional[Dict[str, Any]] = None, *, version: Optional[int] = None, create: bool = False, **content: Any) -> Session:
        return await self._request("PUT", id, content if data is None else dict(content, data=data), version, create)

    async def patch(self, id: str, patch: Dict[str, Any], version: Optional[int] = None) -> Session:
        return await self._request("PATCH", id, patch, version)

    async def delete(self, id: str) -> None:
        try:
            await self._request("DELETE", id)
        except SessionNotFound:
            pass

    async def _request(
        self, method: str, id: Optional[str], body: Optional[Dict[str, Any]] = None, version: Optional[int] = None, create: bool = False,
    ) -> Session:
        path, headers, idempotent = session_request(method, id, body is not None, version, create)
        content = b"" if body is None else encode(body)
        reply = await self._client.balancer.request(method, path + self._query, headers, content, time.monotonic() + self._client.timeout, idempotent)
        session: Session = decode(await reply.read())
        return session


async def _within(seconds: float, step: Awaitable[T]) -> T:
    """asyncio.wait_for, but the caller's cancellation is never lost: before Python 3.12, wait_for returns a result that comes with it, and anyio 3,
    on which httpx may run, loses it while connecting."""
    task = asyncio.ensure_future(step)
    try:
        done, _ = await asyncio.wait([task], timeout=seconds)
        if not done:
            raise asyncio.TimeoutError
    except BaseException:
        task.cancel()
        [late] = await asyncio.gather(task, return_exceptions=True)
        if isinstance(late, httpx.Response):
            await late.aclose()
        raise
    return task.result()


async def _each(items: Iterable[T]) -> AsyncIterator[T]:
    for item in items:
        yield item
