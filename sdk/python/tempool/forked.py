"""Children of os.fork. A child that returned from its handler would answer in its parent's place and take its parent's calls: it ends instead."""

from __future__ import annotations

import json
import os
import signal
import sys

TYPE_CHECKING = False  # the import of typing would slow the start of every worker
if TYPE_CHECKING:
    from typing import Any, NoReturn, Optional

_FLUSH = 1.0  # seconds in which a child writes out what it has printed


def detach_in_children(server: Any) -> None:
    """Calls server.detach() in each child that this process forks from now on."""
    os.register_at_fork(after_in_child=server.detach)


def stop_on_sigterm(server: Any) -> None:
    """Makes SIGTERM stop the server. A forked child, which inherits the handler, ends as if it had none."""
    owner = os.getpid()

    def stop(*_: Any) -> None:
        if os.getpid() == owner:
            server.stop()
            return
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)


def end(*_: Any, error: Optional[bytes] = None, code: int = 0) -> NoReturn:
    """Ends this process, a child whose handler has returned, or raised an error, given as the payload of an ERROR frame."""
    import threading

    def flush() -> None:
        if error is not None:
            sys.stderr.write(json.loads(error).get("traceback", ""))
        sys.stdout.flush()
        sys.stderr.flush()

    try:
        # On a thread, because a stream on which another thread of the parent was printing at the fork stays locked here for good.
        flushing = threading.Thread(target=flush, daemon=True)
        flushing.start()
        flushing.join(_FLUSH)
    finally:
        os._exit(code if error is None else 1)
