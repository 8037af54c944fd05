"""The server: everything put together, embedded by default (worker-and-broker 7)."""

from fastplan.server.config import ServerConfig
from fastplan.server.server import Server, Written

__all__ = ["Server", "ServerConfig", "Written"]
