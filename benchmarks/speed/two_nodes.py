"""A dfl command on a Ray cluster of two nodes, all on this machine; and what happens when something dies in the middle.

    python benchmarks/speed/two_nodes.py paper table sp --sizes 5 --seeds 1-2
    python benchmarks/speed/two_nodes.py --kill node paper table sp --sizes 5 --seeds 1-2
    python benchmarks/speed/two_nodes.py --kill driver paper table sp --sizes 5 --seeds 1-2

The second loses a node once three runs are done, and goes on with the other. The third kills the driver (`kill -9`) at
the same moment and calls the command again, which goes on from the store. The store and the cache are new each time,
unless the command names its own.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dflearn.studies.store import Store

LOOPBACK = "127.0.0.2"  # Ray would replace 127.0.0.1 by the machine's address


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--nodes", type=int, default=2, help="of one core each (default: 2)")
    parser.add_argument("--kill", choices=("node", "driver"), help="once some runs are done")
    parser.add_argument("--after", type=int, default=3, metavar="RUNS", help="how many (default: 3)")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="of dfl, such as: run study.toml")
    options = parser.parse_args()

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    common = {"node_ip_address": LOOPBACK, "object_store_memory": 100 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**common, "num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1, **common) for _ in range(options.nodes)]
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "study.sqlite"
        command = [sys.executable, "-m", "dflearn", *options.command, "--store", str(store)]
        command += ["--cache", f"{folder}/cache", "--executor", "ray", "--address", cluster.address]
        begun = time.perf_counter()
        driver = subprocess.Popen(command)
        if options.kill:
            wait_for(options.after, store, driver)
        if options.kill == "node":
            print(f"after {done(store)} runs: a node is lost", file=sys.stderr)
            cluster.remove_node(nodes[0], allow_graceful=False)
        if options.kill == "driver":
            print(f"after {done(store)} runs: the driver is killed, and called again", file=sys.stderr)
            driver.kill()
            driver.wait()
            driver = subprocess.Popen(command)
        status = driver.wait()
        print(f"{done(store)} runs in {time.perf_counter() - begun:.0f} s on {options.nodes} nodes", file=sys.stderr)
    cluster.shutdown()
    sys.exit(status)


def wait_for(count: int, store: Path, driver: subprocess.Popen[bytes]) -> None:
    while done(store) < count and driver.poll() is None:
        time.sleep(0.05)


def done(store: Path) -> int:
    if not store.exists():
        return 0
    with Store(store) as study:
        return len(study.records())


if __name__ == "__main__":
    main()
