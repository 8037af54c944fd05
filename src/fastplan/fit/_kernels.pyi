class AskNumbers:
    def __init__(
        self,
        cpu_mhz: int = 0,
        memory_mib: int = 0,
        memory_max_mib: int = 0,
        disk_mib: int = 0,
        claims: bytes = b"",
        irregular: bool = False,
        *,
        count: int = 1,
    ) -> None: ...
    @property
    def irregular(self) -> bool: ...

def layout() -> dict[str, int]: ...
def constants() -> dict[str, int]: ...
