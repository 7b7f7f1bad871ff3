"""One gateway endpoint and its idle connections."""

from __future__ import annotations

import email.message
import http.client
import os
import select
import socket
import ssl
import threading
import time
from typing import Dict, Iterable, List, Mapping, Optional, Tuple, Union, cast
from urllib.parse import urlsplit

from .errors import DeadlineExceeded, Unavailable, WorkerCrashed, error_of

CONNECT_TIMEOUT = 3.0  # seconds
GRACE = 5.0  # seconds after a call's deadline in which the gateway itself, which gets its timeout, can report that it was exceeded
UNREACHABLE, SILENT = 0.5, 2.0  # seconds of Gateway.avoid; the latter outlast the pause before a failed renewal is retried
IDLE_TIMEOUT = 60.0  # seconds until an idle connection is closed; the gateway's timeout is longer
MAX_IDLE = 64  # idle connections
_PIECE = 64 << 10
Body = Union[bytes, Iterable[bytes]]
_CONNECT_ERRORS = (OSError, http.client.HTTPException)


class Address:
    """Where a gateway listens: the path of a socket, or host and port. private says whether a token may go there. Raises ValueError for what is no
    http://HOST:PORT, https://HOST:PORT or unix:/PATH."""

    def __init__(self, endpoint: str) -> None:
        self.socket: Optional[str] = None
        self.url, self.host, self.port, self.secure, self.private = "http://gateway", "gateway", 80, False, True
        if endpoint.startswith("unix:"):
            path = endpoint[len("unix:"):]
            self.socket = path[2:] if path.startswith("//") else path
            if not self.socket.startswith("/"):
                raise ValueError("invalid endpoint %r: write unix:/PATH" % endpoint)
            return
        parts = urlsplit(endpoint)
        if "@" in endpoint:  # errors name the endpoint
            raise ValueError("invalid endpoint at %r: it has a user or a password; give the token as token, token_file or TEMPOOL_TOKEN" % parts.hostname)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment:
            shown = endpoint.partition("?")[0].partition("#")[0]
            raise ValueError("invalid endpoint %r: write http://HOST:PORT, https://HOST:PORT or unix:/PATH" % shown)
        self.url, self.host, self.secure = endpoint, parts.hostname, parts.scheme == "https"
        self.port = parts.port or (443 if self.secure else 80)
        self.private = self.secure or _is_loopback(self.host)


def grace(headers: Mapping[str, str]) -> float:
    return GRACE if "Tempool-Timeout" in headers else 0.0


def utf8(headers: email.message.Message) -> Mapping[str, str]:
    """Returns headers, in any case of their names, with values read as UTF-8; http.client reads and writes them as ISO 8859-1."""
    read = http.client.HTTPMessage()
    for name, value in headers.items():
        read[name] = value.encode("latin-1").decode(errors="replace")
    return cast("Mapping[str, str]", read)


class Gateway:
    """What a client knows of the gateway at an endpoint."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.down_until = 0.0  # in time.monotonic() seconds; others are preferred until then
        self.failures = 0  # to connect or to answer, since its last answer

    def avoid(self, least: float) -> None:
        """Has others preferred for a while: twice these seconds after the first failure, and then for longer."""
        self.failures += 1
        self.down_until = time.monotonic() + min(30.0, least * 2 ** min(self.failures, 6))

    def answered(self) -> None:
        self.failures, self.down_until = 0, 0.0


class Endpoint(Gateway):
    """A gateway at http://HOST:PORT, https://HOST:PORT or unix:/PATH. Raises ValueError for anything else."""

    def __init__(self, endpoint: str, token: Optional[str] = None, tls: Optional[ssl.SSLContext] = None) -> None:
        super().__init__(endpoint)
        self._tls = tls
        self._address = Address(endpoint)
        self._headers = {"Authorization": "Bearer " + token} if token and self._address.private else {}
        self._lock = threading.Lock()
        self._idle: List[Tuple[http.client.HTTPConnection, float]] = []  # guarded by _lock: (connection, idle since), newest last
        self._pid = os.getpid()  # guarded by _lock: a forked child must not share its parent's connections
        self._closed = False

    def _open(self, timeout: float) -> http.client.HTTPConnection:
        address = self._address
        if address.socket is not None:
            return _UnixConnection(address.socket, timeout)
        if address.secure:
            return http.client.HTTPSConnection(address.host, address.port, timeout=timeout, context=self._tls)
        return http.client.HTTPConnection(address.host, address.port, timeout=timeout)

    def request(self, method: str, path: str, headers: Dict[str, str], body: Body, deadline: float) -> Reply:
        """Sends a request and returns the Reply, which the caller reads or closes. Raises the TempoolError that the answer reports. Without an
        answer, started is False only if nothing of the request was sent."""
        connection = self._connection(deadline)
        deadline += grace(headers)
        sock = connection.sock  # http.client removes it if the gateway closes the connection after its answer
        try:
            response = self._exchange(connection, method, path, {name: value.encode().decode("latin-1") for name, value in {**headers, **self._headers}.items()}, body, deadline)
        except BaseException:
            connection.close()
            raise
        self.answered()
        reply = Reply(self, connection, sock, response, deadline)
        if response.status < 300:
            return reply
        raise error_of(response.status, response.reason, reply.headers, reply.read())

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, headers: Dict[str, str], body: Body, deadline: float,
    ) -> http.client.HTTPResponse:
        try:
            connection.sock.settimeout(_socket_timeout(deadline))
            try:
                connection.request(method, path, body, headers)
            except (BrokenPipeError, ConnectionResetError):
                if not body:
                    raise
                return connection.getresponse()  # the gateway may have answered before it read the whole body
            return connection.getresponse()
        except socket.timeout as e:
            self.avoid(SILENT)
            raise DeadlineExceeded("deadline exceeded: no answer from the gateway at %s" % self.endpoint, "deadline_exceeded", True) from e
        except _CONNECT_ERRORS as e:
            raise Unavailable("the gateway at %s closed the connection before it answered: %s" % (self.endpoint, _message(e)), "unavailable", True) from e

    def _connection(self, deadline: float) -> http.client.HTTPConnection:
        while True:
            with self._lock:
                if self._pid != os.getpid():
                    self._idle, self._pid = [], os.getpid()
                idle = self._idle.pop() if self._idle else None
            if idle is None:
                return self._connect(deadline)
            connection, since = idle
            if time.monotonic() - since < IDLE_TIMEOUT and not _readable(connection.sock):
                return connection
            connection.close()  # closed by the gateway, or idle for too long

    def _connect(self, deadline: float) -> http.client.HTTPConnection:
        left = deadline - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded("deadline exceeded before the call was sent", "deadline_exceeded", False)
        connection = self._open(min(CONNECT_TIMEOUT, left))
        try:
            connection.connect()
        except _CONNECT_ERRORS as e:
            connection.close()
            self.avoid(UNREACHABLE)
            raise Unavailable("cannot connect to the gateway at %s: %s; is an agent running there?" % (self.endpoint, _message(e)), "unavailable", False) from e
        return connection

    def release(self, connection: http.client.HTTPConnection) -> None:
        """Adds a connection whose last answer was read completely to the idle ones."""
        with self._lock:
            if not self._closed and self._pid == os.getpid() and len(self._idle) < MAX_IDLE:
                self._idle.append((connection, time.monotonic()))
                return
        connection.close()

    def close(self) -> None:
        """Closes idle connections. Answers in progress continue."""
        with self._lock:
            unused, self._idle, self._closed = self._idle, [], True
        for connection, _ in unused:
            connection.close()


class Reply:
    """An answer whose body has not been read yet."""

    def __init__(
        self, gateway: Endpoint, connection: http.client.HTTPConnection, sock: socket.socket, response: http.client.HTTPResponse, deadline: float,
    ) -> None:
        self.gateway = gateway
        self.headers = utf8(response.headers)
        self.status = response.status
        self._connection = connection
        self._socket = sock
        self._response: Optional[http.client.HTTPResponse] = response
        self._deadline = deadline

    def read_some(self) -> bytes:
        """Returns the next available bytes; b"" at the end. Raises WorkerCrashed if the answer is cut off, DeadlineExceeded after the deadline."""
        if self._response is None:
            return b""
        if self._response.isclosed():  # newer Pythons close it after the last byte
            self._end()
            return b""
        try:
            self._socket.settimeout(_socket_timeout(self._deadline))
            data = self._response.read1(_PIECE)
            if not data:
                # read1 does not detect a truncated body.
                if self._response.length:
                    raise http.client.IncompleteRead(b"", self._response.length)
                self._end()
            return data
        except socket.timeout as e:
            self.close()
            raise DeadlineExceeded("deadline exceeded before the answer was complete", "deadline_exceeded", True) from e
        except _CONNECT_ERRORS as e:
            self.close()
            raise WorkerCrashed("the answer was cut off because its worker or gateway ended: %s" % _message(e), "worker_crashed", True) from e
        except BaseException:
            self.close()
            raise

    def read(self) -> bytes:
        """Reads the rest of the body."""
        pieces: List[bytes] = []
        while True:
            data = self.read_some()
            if not data:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.append(data)

    def _end(self) -> None:
        response, self._response = self._response, None
        assert response is not None
        reusable = not response.will_close
        response.close()
        if reusable:
            self.gateway.release(self._connection)
        else:
            self._connection.close()

    def close(self) -> None:
        """Closes the connection unless the answer was read completely; the gateway then cancels the call."""
        if self._response is not None:
            self._response.close()
            self._response = None
            self._connection.close()


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("gateway", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _socket_timeout(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())  # 0 would mean not to wait


def _readable(sock: Optional[socket.socket]) -> bool:
    """Whether an idle connection is readable, which means that it was closed."""
    if sock is None:
        return True
    try:
        if hasattr(select, "poll"):
            poller = select.poll()
            poller.register(sock, select.POLLIN)
            return bool(poller.poll(0))
        return bool(select.select([sock], [], [], 0)[0])
    except (OSError, ValueError):
        return True


def _is_loopback(host: str) -> bool:
    return host == "localhost" or host == "::1" or host.startswith("127.") and host.replace(".", "").isdigit()


def _message(error: BaseException) -> str:
    return str(error) or type(error).__name__
