"""One gateway: where it listens, and the connections kept to it."""

import http.client
import os
import select
import socket
import threading
import time
from urllib.parse import urlsplit

from .errors import DeadlineExceeded, Unavailable, WorkerCrashed, error_of

CONNECT = 3.0  # seconds for one connection to be made
SLACK = 5.0  # seconds that an answer is waited for beyond the deadline, for the gateway to say that it was exceeded
IDLE = 60.0  # seconds that an unused connection is kept; the gateway keeps it longer
KEPT = 64  # unused connections kept
_PIECE = 64 << 10
_CONNECT_ERRORS = (OSError, http.client.HTTPException)


class Gateway:
    """A gateway at http://HOST:PORT, https://HOST:PORT or unix:/PATH. ValueError for anything else."""

    def __init__(self, endpoint, token=None, tls=None):
        self.endpoint = endpoint
        self.down_until = 0.0  # on the clock of time.monotonic(): it could not be reached, so others are asked first
        self.failures = 0  # in a row to reach it
        self._tls = tls
        self._open = self._opener(endpoint)
        self._headers = {"Authorization": "Bearer " + token} if token and self._private else {}
        self._lock = threading.Lock()
        self._idle = []  # guarded by _lock: (connection, since); the newest last
        self._pid = os.getpid()  # guarded by _lock: a child made by fork shares no connection with its parent
        self._closed = False

    def _opener(self, endpoint):
        if endpoint.startswith("unix:"):
            path = endpoint[len("unix:"):]
            path = path[2:] if path.startswith("//") else path
            if not path.startswith("/"):
                raise ValueError("%r names no socket: write unix:/path/of/the/socket" % endpoint)
            self._private = True
            return lambda timeout: _UnixConnection(path, timeout)
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/") or parts.query:
            raise ValueError("%r is no endpoint of a gateway; one looks like http://127.0.0.1:7460, https://HOST:PORT or unix:/PATH" % endpoint)
        host, port = parts.hostname, parts.port
        self._private = parts.scheme == "https" or _is_loopback(host)
        if parts.scheme == "https":
            return lambda timeout: http.client.HTTPSConnection(host, port or 443, timeout=timeout, context=self._tls)
        return lambda timeout: http.client.HTTPConnection(host, port or 80, timeout=timeout)

    def ask(self, method, path, headers, body, deadline):
        """Sends a request and returns the Reply to it, which is to be read or closed. Raises what the answer says if that is an error;
        then, and where there is no answer, started is False only if nothing of the request was sent."""
        connection = self._take(deadline)
        sock = connection.sock  # an answer after which the gateway hangs up takes it off the connection
        try:
            response = self._exchange(connection, method, path, dict(headers, **self._headers), body, deadline)
        except BaseException:
            connection.close()
            raise
        reply = Reply(self, connection, sock, response, deadline)
        if response.status < 300:
            return reply
        raise error_of(response.status, response.reason, response.headers, reply.read())

    def _exchange(self, connection, method, path, headers, body, deadline):
        try:
            connection.sock.settimeout(_patience(deadline))
            try:
                connection.request(method, path, body, headers)
            except (BrokenPipeError, ConnectionResetError):
                if not body:
                    raise
                return connection.getresponse()  # it may have refused a body before it came to its end
            return connection.getresponse()
        except socket.timeout as e:
            raise DeadlineExceeded("no answer of the gateway at %s came within the call's time" % self.endpoint, "deadline_exceeded", True) from e
        except _CONNECT_ERRORS as e:
            raise Unavailable("the gateway at %s broke off before it answered: %s" % (self.endpoint, _said(e)), "unavailable", True) from e

    def _take(self, deadline):
        while True:
            with self._lock:
                if self._pid != os.getpid():
                    self._idle, self._pid = [], os.getpid()
                connection, since = self._idle.pop() if self._idle else (None, 0.0)
            if connection is None:
                return self._connect(deadline)
            if time.monotonic() - since < IDLE and not _readable(connection.sock):
                return connection
            connection.close()  # the gateway has closed it, or will soon

    def _connect(self, deadline):
        left = deadline - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded("the call's time was over before it could begin", "deadline_exceeded", False)
        connection = self._open(min(CONNECT, left))
        try:
            connection.connect()
        except _CONNECT_ERRORS as e:
            connection.close()
            self.failures += 1
            self.down_until = time.monotonic() + min(30.0, 0.5 * 2 ** min(self.failures, 6))
            raise Unavailable("the gateway at %s cannot be reached: %s; does an agent run there?" % (self.endpoint, _said(e)), "unavailable", False) from e
        self.failures, self.down_until = 0, 0.0
        return connection

    def give_back(self, connection):
        """Keeps a connection whose last answer was read to its end."""
        with self._lock:
            if not self._closed and self._pid == os.getpid() and len(self._idle) < KEPT:
                self._idle.append((connection, time.monotonic()))
                return
        connection.close()

    def close(self):
        """Closes what is kept. Answers being read are not touched."""
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        for connection, _ in idle:
            connection.close()


class Reply:
    """An answer whose body is still to be read."""

    def __init__(self, gateway, connection, sock, response, deadline):
        self.gateway = gateway
        self.headers = response.headers
        self.status = response.status
        self._connection = connection
        self._socket = sock
        self._response = response
        self._deadline = deadline

    def piece(self):
        """The next bytes that have come; b"" at the end. Raises WorkerCrashed when the answer breaks off, DeadlineExceeded when it takes too long."""
        if self._response is None:
            return b""
        if self._response.isclosed():  # newer Pythons close it with the last byte, and the socket with it
            self._end()
            return b""
        try:
            self._socket.settimeout(_patience(self._deadline))
            data = self._response.read1(_PIECE)
            if not data:
                # A body of known length that ends early is no error to read1.
                if self._response.length:
                    raise http.client.IncompleteRead(b"", self._response.length)
                self._end()
            return data
        except socket.timeout as e:
            self.close()
            raise DeadlineExceeded("the answer did not come to its end within the call's time", "deadline_exceeded", True) from e
        except _CONNECT_ERRORS as e:
            self.close()
            raise WorkerCrashed("the answer broke off, its worker or its gateway ended: %s" % _said(e), "worker_crashed", True) from e
        except BaseException:
            self.close()
            raise

    def read(self):
        """All that is left of the body."""
        pieces = []
        while True:
            data = self.piece()
            if not data:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.append(data)

    def _end(self):
        reusable = not self._response.will_close
        self._response.close()
        self._response = None
        if reusable:
            self.gateway.give_back(self._connection)
        else:
            self._connection.close()

    def close(self):
        """Ends the call, also in mid-answer: the gateway then cancels it. Does nothing after the end."""
        if self._response is not None:
            self._response.close()
            self._response = None
            self._connection.close()


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("gateway", timeout=timeout)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _patience(deadline):
    """Seconds to wait for the socket; the gateway knows the deadline and keeps it, so this is for one that does not."""
    return max(0.0, deadline - time.monotonic()) + SLACK


def _readable(sock):
    """Whether an unused connection has something to read, which can only be its end."""
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


def _is_loopback(host):
    return host == "localhost" or host == "::1" or host.startswith("127.") and host.replace(".", "").isdigit()


def _said(error):
    return str(error) or type(error).__name__
