"""Many calls of one method, a bounded number at a time."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, Iterator, Optional, Set

from .errors import TempoolError

WINDOW = 4  # how many times the concurrency may have ended and wait for their turn


@dataclass(frozen=True)
class Result:
    """What became of one item: its value, or the error of its call."""

    index: int
    item: Any
    value: Any = None
    error: Optional[TempoolError] = None

    @property
    def ok(self) -> bool:
        return self.error is None

    def get(self) -> Any:
        """Returns the value; raises the error."""
        if self.error is not None:
            raise self.error
        return self.value


def map_calls(
    call: Callable[[Any], Any], items: Iterable[Any], ordered: bool, concurrency: int, on_progress: Optional[Callable[[int], None]],
) -> Iterator[Result]:
    """Yields a Result for each item; in their order if ordered, else as calls end. A consumer that leaves early waits for the calls in flight."""

    def one(index: int, item: Any) -> Result:
        try:
            return Result(index, item, call(item))
        except TempoolError as e:
            return Result(index, item, error=e)

    source = enumerate(items)
    running: Set[Future[Result]] = set()
    finished: Dict[int, Result] = {}
    taken = yielded = done = 0
    exhausted = False
    with ThreadPoolExecutor(concurrency, thread_name_prefix="tempool-map") as threads:
        while True:
            while not exhausted and len(running) < concurrency and taken - yielded < WINDOW * concurrency:
                try:
                    index, item = next(source)
                except StopIteration:
                    exhausted = True
                    break
                taken += 1
                running.add(threads.submit(one, index, item))
            ready = yielded if ordered else next(iter(finished), -1)
            if ready in finished:
                yielded += 1
                yield finished.pop(ready)
            elif running:
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    result = future.result()
                    finished[result.index] = result
                    done += 1
                    if on_progress is not None:
                        on_progress(done)
            else:
                return
