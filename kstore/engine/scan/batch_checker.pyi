from typing import Any, final

from numpy.typing import NDArray

from kstore.engine.scan.batch_reader import Reader

def row_layout() -> Any: ...

@final
class BatchChecker(Reader):
    @property
    def errors(self) -> dict[int, Exception]: ...
    @property
    def end_position(self) -> int: ...
    def __next__(self) -> NDArray[Any]: ...
