"""The part of google-re2 that fastplan uses; the package ships without types."""

class error(Exception): ...

class Options:
    max_mem: int
    log_errors: bool

class Match: ...

class Regexp:
    def search(self, text: str) -> Match | None: ...

def compile(pattern: str, options: Options | None = None) -> Regexp: ...
