"""Nodes taken apart once for all selections of an attempt."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from fastplan.fit.encode import core_speeds
from fastplan.fit.supply import DeviceKind, NodeSupply, supply_of
from fastplan.scheduler.classes import computed_class
from fastplan.structs import Core, Node, NodeDevice
from fastplan.structs.canonical import canonical_node


@dataclass(frozen=True)
class NodeFacts:
    """What rankers read of a node again and again: its canonical record, and what it supplies."""

    node: Node
    supply: NodeSupply

    @classmethod
    def of(cls, node: Node) -> NodeFacts:
        """Take a node apart."""
        canonical = canonical_node(node)
        return cls(canonical, supply_of(canonical))

    @cached_property
    def core_speeds_mhz(self) -> dict[int, int]:
        """The speed of each core id."""
        return core_speeds(self.node)

    @cached_property
    def computed_class(self) -> str:
        """The class of the node (schedulers 8.2)."""
        return computed_class(self.node)

    @property
    def cores(self) -> list[Core]:
        """The cores of the topology, in node order."""
        resources = self.node.node_resources
        topology = None if resources is None else resources.processors.topology
        return [] if topology is None else list(topology.cores or ())

    @cached_property
    def device_groups(self) -> dict[DeviceKind, NodeDevice]:
        """The device groups by kind, in node order; of two of one kind the later counts (plan-apply 2.7)."""
        resources = self.node.node_resources
        groups = () if resources is None else resources.devices or ()
        return {(group.vendor, group.type, group.name): group for group in groups if group is not None}


class FactsOfNodes:
    """The facts of nodes, made when somebody asks and kept as long as the record of the node is the same. May be shared by threads."""

    def __init__(self) -> None:
        self._facts: dict[str, tuple[Node, NodeFacts]] = {}

    def of(self, node: Node) -> NodeFacts:
        """Return the facts of a node."""
        known = self._facts.get(node.id)
        if known is None or known[0] is not node:
            known = self._facts[node.id] = (node, NodeFacts.of(node))
        return known[1]
