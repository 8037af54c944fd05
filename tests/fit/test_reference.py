"""The fit check: the table of plan-apply 10.1, the older forms of 10.8, and the kinds of fault seen elsewhere."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fastplan.errors import InvalidInput, Reason
from fastplan.fit import FitResult, PortIndex, UsedResources, allocs_fit
from tests.fit.fixture_f import alloc, gpu, load, load_node, node_f, phases, port, task, volume_job

VOLUMES = "conflicting claims for host volume with single-writer"
SINGLE_WRITER = "single-node-single-writer"


def fit(*allocs: dict[str, Any], node: dict[str, Any] | None = None, check_devices: bool = True) -> FitResult:
    return allocs_fit(load_node(node), load(*allocs), check_devices=check_devices)


def changed(**resources: Any) -> dict[str, Any]:
    """Node F with other parts of NodeResources."""
    node = node_f()
    node["NodeResources"] |= resources
    return node


def cores(*disabled: int, count: int = 4, override: int = 0) -> dict[str, Any]:
    topology = {"Cores": [{"ID": core, "BaseSpeed": 2000, "Disable": core in disabled} for core in range(count)], "OverrideTotalCompute": override}
    return changed(Processors={"Topology": topology})


def reserving(**reserved: Any) -> dict[str, Any]:
    node = node_f()
    node["ReservedResources"] |= reserved
    return node


def limited(maximum: int) -> dict[str, Any]:
    return node_f() | {"NodeMaxAllocs": maximum}


TABLE: list[tuple[str, dict[str, Any] | None, list[dict[str, Any]], str]] = [
    ("F1 nothing", None, [], ""),
    ("F2 exactly all", None, [alloc(7500, 15000, 48000)], ""),
    ("F3 one MHz over", None, [alloc(7501, 15000, 48000)], "cpu"),
    ("F4 one MiB over", None, [alloc(7500, 15001, 48000)], "memory"),
    ("F5 one MiB of disk over", None, [alloc(7500, 15000, 48001)], "disk"),
    ("F6 first of several", None, [alloc(9000, 99999, 99999)], "cpu"),
    ("F7 overlap outranks cpu", None, [alloc(9000, 1, id="a", cores=(1,)), alloc(9000, 1, id="b", cores=(1,))], "cores"),
    ("F8 core shared by tasks", None, [phases(x=(task(cores=(2,)), "main", False), y=(task(cores=(2,)), "main", False))], ""),
    ("F9 core not on node", None, [alloc(1000, cores=(9,))], "cores"),
    ("F10 no core set", reserving(Cpu={"CpuShares": 500, "ReservedCpuCores": [0, 1, 2, 3]}), [alloc(1000, cores=(9,))], ""),
    ("F11 core reserved", reserving(Cpu={"CpuShares": 500, "ReservedCpuCores": [0]}), [alloc(cores=(0,))], "cores"),
    ("F12 disabled core adds MHz", cores(3), [alloc(7500)], ""),
    ("F13 disabled core pinned", cores(3), [alloc(cores=(3,))], "cores"),
    ("F14 override", cores(override=1000), [alloc(501)], "cpu"),
    ("F14 override reached", cores(override=1000), [alloc(500)], ""),
    ("F15 nothing reserved", node_f() | {"ReservedResources": None}, [alloc(8000, 16000, 50000)], ""),
    ("F16 reserved above memory", reserving(Memory={"MemoryMB": 17000}), [], "memory"),
    ("F17 server-terminal counts", None, [alloc(4000, id="a", desired="stop"), alloc(4000, id="b")], "cpu"),
    ("F18 client-terminal does not", None, [alloc(4000, id="a", client="failed"), alloc(4000, id="b")], ""),
    ("F19 unknown is live", None, [alloc(4000, id="a", client="unknown"), alloc(4000, id="b")], "cpu"),
    ("F22 terminal entries count", limited(1), [alloc(id="a"), alloc(id="b", client="complete")], "max allocation exceeded"),
    ("F23 maximum reached", limited(2), [alloc(id="a"), alloc(id="b")], ""),
    ("F24 negative maximum", limited(-1), [], "max allocation exceeded"),
    ("F30 device shared", None, [alloc(id="a", devices=[gpu("g0")]), alloc(id="b", devices=[gpu("g0")])], "device oversubscribed"),
    ("F31 device twice in a task", None, [alloc(devices=[gpu("g0", "g0")])], "device oversubscribed"),
    ("F32 unhealthy device", None, [alloc(id="a", devices=[gpu("g2")]), alloc(id="b", devices=[gpu("g2")])], ""),
    ("F33 unknown group", None, [alloc(id="a", devices=[gpu("g0", name="zz")]), alloc(id="b", devices=[gpu("g0", name="zz")])], ""),
    ("F35 single writer", None, [alloc(id="a", Job=volume_job(SINGLE_WRITER)), alloc(id="b", Job=volume_job(""))], VOLUMES),
    ("F36 no job attached", None, [alloc(id="a", Job=volume_job(SINGLE_WRITER)), alloc(id="b")], ""),
    ("F37 two requests of a group", None, [alloc(Job=volume_job(SINGLE_WRITER, ""))], VOLUMES),
    ("F38 node writers", None, [alloc(id="a", Job=volume_job("single-node-writer")), alloc(id="b", Job=volume_job("single-node-writer"))], ""),
    (
        "F39 device before volume",
        None,
        [alloc(id="a", devices=[gpu("g0")], Job=volume_job(SINGLE_WRITER)), alloc(id="b", devices=[gpu("g0")], Job=volume_job(""))],
        "device oversubscribed",
    ),
]


@pytest.mark.parametrize(("node", "allocs", "reason"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_table(node, allocs, reason):
    result = fit(*allocs, node=node)
    assert (result.reason, result.fit) == (reason, reason == "")
    assert result.error == ("plan exceeds max allocation" if reason == "max allocation exceeded" else "")
    assert result.code.text == reason


def test_used_is_the_sum_also_when_it_does_not_fit():
    assert fit().used == UsedResources()
    assert fit(alloc(7501, 15000, 48000)).used == UsedResources(7501, 15000, 15000, 48000)
    assert fit(alloc(9000, 1, id="a", cores=(1,)), alloc(9000, 1, id="b", cores=(1,))).used == UsedResources(18000, 2, 2, 0, (1,))
    assert fit(alloc(4000, id="a", desired="stop"), alloc(4000, id="b")).used.cpu_mhz == 8000
    assert fit(alloc(4000, id="a", client="failed"), alloc(4000, id="b")).used.cpu_mhz == 4000
    assert fit(alloc(id="a"), alloc(id="b"), node=limited(1)).used == UsedResources()


def test_used_cores_are_ascending_and_single():
    assert fit(alloc(id="a", cores=(3, 1)), alloc(id="b", cores=(0,))).used.reserved_cores == (0, 1, 3)
    assert UsedResources(reserved_cores=[5, 2, 5]).reserved_cores == (2, 5)


@pytest.mark.parametrize(
    ("allocs", "memory", "memory_max"),
    [
        pytest.param([alloc(100, 7000, id="a", memory_max=30000), alloc(100, 7000, id="b", memory_max=30000)], 14000, 60000, id="F20"),
        pytest.param([alloc(100, 700, id="a"), alloc(100, 7000, id="b", memory_max=30000)], 7700, 30700, id="F21"),
        pytest.param([alloc(100, 1000, memory_max=-1)], 1000, 1000, id="F29 unlimited"),
    ],
)
def test_memory_maximum_is_reported_and_never_checked(allocs, memory, memory_max):
    result = fit(*allocs)
    assert (result.fit, result.used.memory_mib, result.used.memory_max_mib) == (True, memory, memory_max)


@pytest.mark.parametrize(
    ("demand", "used"),
    [
        pytest.param(
            phases(a=(task(2000, 10), "prestart", False), b=(task(4000, 20), "main", False), c=(task(1000, 50), "poststop", False)),
            UsedResources(4000, 50, 50),
            id="F25",
        ),
        pytest.param(
            phases(
                a=(task(1000, 1, cores=(0,)), "prestart", False),
                b=(task(2000, 1, cores=(1, 2)), "prestart", True),
                c=(task(2000, 1, cores=(3, 4)), "main", False),
                d=(task(1000, 1, cores=(5,)), "poststop", False),
            ),
            UsedResources(6000, 2, 2, 0, range(6)),
            id="F26",
        ),
        pytest.param(
            phases(a=(task(1000, 1), "prestart", False), b=(task(2000, 1, cores=(1, 2)), "main", False), c=(task(1000, 1), "poststop", False)),
            UsedResources(3000, 1, 1, 0, (1, 2)),
            id="F27",
        ),
        pytest.param(
            phases(
                a=(task(300, 400), "prestart", False),
                b=(task(100, 64), "prestart", True),
                c=(task(250, 256, memory_max=512), "main", False),
                d=(task(50, 32), "poststart", False),
                e=(task(999, 999), "weird", False),
                f=(task(500, 100), "poststop", False),
            ),
            UsedResources(500, 464, 608),
            id="F28",
        ),
        pytest.param(phases(a=(task(700, 70), "", False)), UsedResources(), id="a lifecycle without a hook belongs to no phase"),
        pytest.param(phases(a=(task(700, 70, cores=(1,)), "weird", False)), UsedResources(700, 0, 0, 0, (1,)), id="an unknown hook still pins cores"),
    ],
)
def test_demand_is_the_greatest_phase_of_each_component(demand, used):
    assert allocs_fit(load_node(cores(count=8)), load(demand)).used == used


def test_check_devices_off_leaves_out_devices_and_volumes():
    shared = [alloc(id="a", devices=[gpu("g0")], Job=volume_job(SINGLE_WRITER)), alloc(id="b", devices=[gpu("g0")], Job=volume_job(""))]
    assert fit(*shared, check_devices=False).fit
    assert fit(alloc(Job=volume_job("", group="other")), check_devices=False).fit


def test_f34_later_device_group_replaces_the_earlier():
    group = node_f()["NodeResources"]["Devices"][0]
    node = changed(Devices=[group, group | {"Instances": [{"ID": "h0", "Healthy": True}]}])
    assert fit(alloc(id="a", devices=[gpu("g0")]), alloc(id="b", devices=[gpu("g0")]), node=node).fit
    assert fit(alloc(id="a", devices=[gpu("h0")]), alloc(id="b", devices=[gpu("h0")]), node=node).reason == "device oversubscribed"


def test_f40_group_missing_in_attached_job():
    with pytest.raises(InvalidInput) as caught:
        fit(alloc(Job=volume_job("", group="other")))
    assert (caught.value.path, caught.value.value) == ("alloc a.TaskGroup", "web")


def test_f41_f42_allocation_without_resources():
    bare = {"ID": "bare", "ClientStatus": "running"}
    with pytest.raises(InvalidInput, match=r"alloc bare\.AllocatedResources"):
        fit(bare)
    assert fit(bare | {"ClientStatus": "complete"}).fit


def test_f43_ports_are_not_checked_with_an_index_passed_in():
    allocs = load(alloc(id="a", ports=[port(8000)]), alloc(id="b", ports=[port(8000)]))
    assert allocs_fit(load_node(), allocs, port_index=PortIndex(load_node())).fit
    assert not allocs_fit(load_node(), allocs).fit


# --- the order of the checks ------------------------------------------------------------------------------------------


def test_each_check_outranks_the_later_ones():
    """One list fails everything; repairing what is reported brings up the next reason of the table."""
    first = alloc(9000, 99999, 99999, id="a", cores=(1,), devices=[gpu("g0")], ports=[port(8000)], Job=volume_job(SINGLE_WRITER))
    second = alloc(1, 1, 1, id="b", cores=(1,), devices=[gpu("g0")], ports=[port(8000)], Job=volume_job(""))
    node = node_f()
    node["NodeMaxAllocs"] = 1
    node["ReservedResources"]["Networks"]["ReservedHostPorts"] = "x"
    seen = [fit(first, second, node=node).code]
    node["NodeMaxAllocs"] = 0
    seen.append(fit(first, second, node=node).code)
    second["AllocatedResources"]["Tasks"]["t"]["Cpu"]["ReservedCores"] = [9]
    seen.append(fit(first, second, node=node).code)
    first["AllocatedResources"]["Tasks"]["t"]["Cpu"]["CpuShares"] = 1
    seen.append(fit(first, second, node=node).code)
    second["AllocatedResources"]["Tasks"]["t"]["Cpu"]["ReservedCores"] = []
    seen.append(fit(first, second, node=node).code)
    first["AllocatedResources"]["Tasks"]["t"]["Memory"]["MemoryMB"] = 1
    seen.append(fit(first, second, node=node).code)
    first["AllocatedResources"]["Shared"]["DiskMB"] = 1
    seen.append(fit(first, second, node=node).code)
    node["ReservedResources"]["Networks"]["ReservedHostPorts"] = ""
    seen.append(fit(first, second, node=node).code)
    second["AllocatedResources"]["Shared"]["Ports"] = []
    seen.append(fit(first, second, node=node).code)
    second["AllocatedResources"]["Tasks"]["t"]["Devices"] = []
    seen.append(fit(first, second, node=node).code)
    second["Job"] = None
    seen.append(fit(first, second, node=node).code)
    assert seen == [
        Reason.MAX_ALLOCS, Reason.CORES, Reason.CPU, Reason.CORES, Reason.MEMORY, Reason.DISK,
        Reason.NODE_PORTS, Reason.ALLOC_PORTS, Reason.DEVICES, Reason.VOLUMES, Reason.FITS,
    ]  # fmt: skip


@pytest.mark.parametrize("broken", [{"NodeResources": None}, {"NodeResources": {"NodeNetworks": []}}], ids=["no resources", "no topology"])
def test_unreadable_node_is_noticed_at_step_3_only(broken):
    node = node_f() | broken
    overlap = [alloc(id="a", cores=(1,)), alloc(id="b", cores=(1,))]
    assert fit(*overlap, node=node).reason == "cores"
    assert fit(node=node | {"NodeMaxAllocs": -1}).reason == "max allocation exceeded"
    with pytest.raises(InvalidInput, match=r"node\.NodeResources"):
        fit(node=node)


def test_null_entries_are_invalid_where_they_are_read():
    def mended(change: dict[str, Any], client: str = "running") -> dict[str, Any]:
        made = alloc(client=client)
        made["AllocatedResources"]["Tasks"]["t"] |= change
        return made

    no_task = alloc()
    no_task["AllocatedResources"]["Tasks"]["other"] = None
    null_group_network = alloc()
    null_group_network["AllocatedResources"]["Shared"]["Networks"] = [None]
    null_request = alloc(Job={"TaskGroups": [{"Name": "web", "Volumes": {"v": None}}]})
    for entry in (no_task, null_group_network, null_request, mended({"Networks": [None]}), mended({"Devices": [None]})):
        with pytest.raises(InvalidInput):
            fit(entry)
        assert fit(entry | {"ClientStatus": "complete"}).fit
    with pytest.raises(InvalidInput, match="Devices"):
        fit(node=changed(Devices=[None]))
    assert fit(node=changed(Devices=[None]), check_devices=False).fit
    # Earlier steps still answer, and hidden networks are never read.
    assert fit(null_group_network, alloc(9000, id="b")).reason == "cpu"
    hidden = copy.deepcopy(null_group_network)
    hidden["AllocatedResources"]["Shared"]["Ports"] = [port(8000)]
    assert fit(hidden).fit


def test_sums_beyond_64_bits_are_exact():
    huge = 2**63 - 1
    result = fit(alloc(huge, huge, huge, id="a"), alloc(huge, huge, huge, id="b"))
    assert (result.reason, result.used.cpu_mhz, result.used.disk_mib) == ("cpu", 2**64 - 2, 2**64 - 2)


def test_input_is_left_as_it_is():
    node, allocs = load_node(), load(alloc(id="b", ports=[port(8000)]), {"ID": "old", "TaskResources": {"t": {"CPU": 100, "MemoryMB": 10}}})
    before = node.to_api(), [one.to_api() for one in allocs]
    allocs_fit(node, allocs)
    assert (node.to_api(), [one.to_api() for one in allocs]) == before


# --- older forms (plan-apply 10.8) --------------------------------------------------------------------------------------


def cpu_block(shares: int, count: int, reservable: list[int] | None = None, **more: Any) -> dict[str, Any]:
    block = {"CpuShares": shares, "TotalCpuCores": count, "ReservableCpuCores": reservable}
    return {"ID": "old", "NodeResources": {"Cpu": block, "Memory": {"MemoryMB": 1000}, "Disk": {"DiskMB": 1000}, **more}}


@pytest.mark.parametrize(
    ("node", "total", "core_ids"),
    [
        pytest.param(cpu_block(12800, 4, [0, 1, 2, 3]), 12800, {0, 1, 2, 3}, id="J1"),
        pytest.param(cpu_block(9600, 4, [1, 2, 3]), 9600, {1, 2, 3}, id="J2"),
        pytest.param(cpu_block(9600, 3), 9600, {0, 1, 2}, id="J3"),
    ],
)
def test_topology_is_made_from_the_cpu_block(node, total, core_ids):
    assert fit(alloc(total), node=node).fit
    assert fit(alloc(total + 1), node=node).reason == "cpu"
    for core in range(5):
        assert fit(alloc(cores=(core,)), node=node).fit is (core in core_ids)


def test_j4_j5_no_topology_at_all():
    assert fit(alloc(1, 1), node=cpu_block(0, 0)).reason == "cpu"
    assert fit(alloc(0, 1), node=cpu_block(0, 0)).fit
    with pytest.raises(InvalidInput):
        fit(alloc(1, 1), node=cpu_block(0, 0, NodeNetworks=[]))


def test_j7_legacy_task_resources():
    network = {"IP": "10.1.0.5", "ReservedPorts": [{"Label": "p", "Value": 8000}]}
    old = {
        "ID": "old",
        "TaskResources": {"t": {"CPU": 400, "MemoryMB": 30, "MemoryMaxMB": 900, "Networks": [network]}},
        "SharedResources": {"DiskMB": 70},
    }
    assert fit(old).used == UsedResources(400, 30, 30, 70)
    assert "task t of alloc old" in fit(alloc(id="b", ports=[port(8000)]), old).reason


def test_allocation_with_only_the_sum_of_its_resources():
    assert fit({"ID": "old", "Resources": {"CPU": 400, "MemoryMB": 30, "MemoryMaxMB": 90, "DiskMB": 70}}).used == UsedResources(400, 30, 90, 70)


def test_j8_null_lifecycle_is_a_main_task():
    assert fit(phases(a=(task(100, 10), "main", False), b=(task(200, 20), "main", False))).used == UsedResources(300, 30, 30)


def test_node_older_than_the_split_layout():
    """Reserved ports hold on their own address, on task networks and on host networks (plan-apply 1.4)."""
    node = {
        "ID": "ancient",
        "Resources": {"CPU": 4000, "MemoryMB": 8192, "DiskMB": 1000, "Networks": [{"Device": "eth0", "IP": "10.0.0.1"}]},
        "Reserved": {
            "CPU": 500,
            "MemoryMB": 192,
            "DiskMB": 100,
            "Networks": [{"IP": "10.0.0.9", "ReservedPorts": [{"Value": 22}], "DynamicPorts": [{"Value": 0}]}],
        },
    }
    assert fit(alloc(3500, 8000, 900), node=node).fit
    assert [fit(alloc(*asked), node=node).reason for asked in [(3501, 8000, 900), (3500, 8001, 900), (3500, 8000, 901)]] == ["cpu", "memory", "disk"]
    assert fit(alloc(cores=(7,)), node=node).fit  # no core set
    for address in ("10.0.0.1", "10.0.0.9"):
        for number in (0, 22):
            assert fit(alloc(ports=[port(number, address)]), node=node).code is Reason.ALLOC_PORTS
    assert fit(alloc(ports=[port(22, "10.0.0.7")]), node=node).fit
    for number in (-1, 65537):
        node["Reserved"]["Networks"][0]["ReservedPorts"][0]["Value"] = number  # type: ignore[index]
        assert fit(node=node).reason == f"reserved node port collision: invalid port {number} for reserved_ports"
    node["Reserved"]["Networks"][0]["ReservedPorts"][0]["Value"] = 65536  # type: ignore[index]
    with pytest.raises(InvalidInput):
        fit(node=node)


# --- kinds of fault seen elsewhere --------------------------------------------------------------------------------------


def machine(cpu: int, memory: int, *, cores: int = 0, reserved: tuple[int, int] = (0, 0), **more: Any) -> dict[str, Any]:
    topology: dict[str, Any] = {"OverrideTotalCompute": cpu, "Cores": [{"ID": core} for core in range(cores)]}
    resources = {"Processors": {"Topology": topology}, "Memory": {"MemoryMB": memory}, "Disk": {"DiskMB": 1000}, "NodeNetworks": []}
    return {"ID": "m", "NodeResources": resources | more, "ReservedResources": {"Cpu": {"CpuShares": reserved[0]}, "Memory": {"MemoryMB": reserved[1]}}}


def test_reservation_is_taken_off_once():
    node = machine(4000, 8192, reserved=(500, 1024))
    assert [fit(alloc(*asked), node=node).reason for asked in [(3500, 7168), (3501, 7168), (3500, 7169)]] == ["", "cpu", "memory"]


def test_poststart_task_belongs_to_the_main_phase():
    both = phases(main=(task(500, 256), "main", False), after=(task(400, 128), "poststart", False))
    assert fit(both, node=machine(899, 4096)).reason == "cpu"
    assert fit(both, node=machine(900, 384)).fit


def test_maximum_of_allocations_on_a_huge_node():
    node = machine(10**9, 10**9)
    three = [alloc(1, 1, id=f"a{index}") for index in range(3)]
    assert fit(*three, node=node | {"NodeMaxAllocs": 2}).reason == "max allocation exceeded"
    many = load(*three) * 1000
    assert allocs_fit(load_node(node), many).fit


def test_burst_memory_does_not_count():
    node = machine(1000, 1024)
    for maximum in (4096, -1):
        two = [alloc(1, 512, id="a", memory_max=maximum), alloc(1, 512, id="b", memory_max=maximum)]
        assert fit(*two, node=node).fit
        assert fit(*two, alloc(1, 1, id="c"), node=node).reason == "memory"


def test_bandwidth_is_never_checked():
    node = machine(1000, 1000, Networks=[{"Device": "eth0", "IP": "10.0.0.1", "MBits": 100}])
    asks = [alloc(1, 1, id=f"a{index}") for index in range(3)]
    for one in asks:
        one["AllocatedResources"]["Tasks"]["t"]["Networks"] = [{"Device": "eth0", "IP": "10.0.0.1", "MBits": 10**6}]
    assert fit(*asks, node=node).fit


def test_missing_sub_objects_count_as_nothing():
    """An allocation without any resources is invalid all the same: the specification wins (F41)."""
    assert (
        fit({"ID": "a", "AllocatedResources": {"Tasks": {}, "Shared": None}}, {"ID": "b", "AllocatedResources": {}}, node=machine(100, 100)).used
        == UsedResources()
    )


def test_cores_of_every_phase_are_pinned_for_life():
    first = phases(main=(task(cores=(0, 1)), "main", False), beside=(task(cores=(2, 3)), "poststart", True))
    node = machine(10**6, 10**6, cores=8)
    assert fit(first, alloc(id="b", cores=(2,)), node=node).reason == "cores"
    assert fit(first, alloc(id="b", cores=(4,)), node=node).fit


def test_overlap_of_pinned_sets_comes_before_cpu_and_memory():
    assert fit(alloc(10**9, 10**9, id="a", cores=(0, 1)), alloc(id="b", cores=(1, 2)), node=machine(10**6, 10**6, cores=8)).reason == "cores"


def test_core_ids_may_have_holes():
    ids = [*range(1, 24), *range(25, 48)]
    node = cpu_block(46000, 48, ids, NodeNetworks=[])
    assert fit(alloc(cores=tuple(ids)), node=node).fit
    assert fit(alloc(id="a", cores=tuple(ids[:-1])), alloc(id="b", cores=(47,)), node=node).fit
    assert fit(alloc(cores=(24,)), node=node).reason == "cores"


@pytest.mark.parametrize("core", [-1, 70000])
def test_absurd_core_ids_are_refused_on_load(core):
    with pytest.raises(InvalidInput, match="ReservedCores"):
        fit(alloc(cores=(core,)))


@pytest.mark.parametrize("count", [-1, 70000])
def test_absurd_core_counts_are_refused_on_load(count):
    with pytest.raises(InvalidInput, match="TotalCpuCores"):
        fit(node=cpu_block(1000, count))


def test_vanished_device_blocks_nobody():
    holder = alloc(id="a", devices=[gpu("g9")])
    assert fit(holder, alloc(id="b", devices=[gpu("g0")])).fit
    assert fit(holder, alloc(id="c", devices=[gpu("g9")])).fit  # ignored today; the strict rules refuse c


def test_allocation_keeps_its_own_devices():
    assert fit(alloc(id="b", devices=[gpu("g0")]), alloc(id="a", devices=[gpu("g1")])).fit


def test_volume_type_and_per_alloc_suffix_do_not_matter():
    csi = {"TaskGroups": [{"Name": "web", "Volumes": {"v": {"Source": "d", "Type": "csi", "AccessMode": SINGLE_WRITER, "PerAlloc": True}}}]}
    reader = volume_job("single-node-reader-only")
    assert fit(alloc(id="a", Job=csi), alloc(id="b", Job=reader)).reason == VOLUMES
    assert fit(alloc(id="a", Job=csi), alloc(id="b", Job=volume_job("", source="e"))).fit
    assert fit(alloc(id="a", Job=csi, client="failed"), alloc(id="b", Job=reader)).fit


def test_allocation_without_job_on_a_node_with_an_exclusive_volume():
    """Its volumes are unknown, its resources count."""
    holder = alloc(id="a", Job=volume_job(SINGLE_WRITER))
    assert fit(holder, alloc(id="b")).fit
    assert fit(holder, alloc(9000, id="b")).reason == "cpu"
