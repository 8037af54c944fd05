import numpy
from numpy.typing import NDArray

def check_and_commit(free: NDArray[numpy.int64], rows: NDArray[numpy.uint32], asks: NDArray[numpy.int64], accepted: NDArray[numpy.uint8]) -> int: ...
